"""A run as the certificate takes it: its method with the weights of its newest checkpoint, and batches of its data."""

from pathlib import Path

from rich.console import Console

from nearfar.config import TrainConfig
from nearfar.distributed.trial import Subject
from nearfar.training import checkpoint
from nearfar.training.run import Run


def subject_of_run(folder: Path, rows: int = 12) -> Subject:
    """The method of a run folder, at its newest checkpoint, with two batches of so many training samples."""
    run = Run(TrainConfig.from_yaml(folder / "config.yaml"), folder, resume=False, console=Console(quiet=True))
    if checkpoint.numbered(folder / "checkpoints"):
        run.method.load_state_dict(checkpoint.load_newest(folder / "checkpoints")[0]["method"])
    ids, labels = run.modality.ids(run.train), run.train.labels if run.method.needs_labels else None
    batches = []
    for step, index in enumerate(run.loader.order(0)[: 2 * rows].split(rows)):
        views = run.modality.views(run.train.fetch(index), run.train, index, seed=run.config.seed, step=step)
        views = [x.clone() for x in views]  # the next are written over these
        of_batch = None if labels is None else labels[index]
        batches.append(run.modality.as_batch(views, run.train, index, ids[index], of_batch))
    return Subject(run.config.method, run.method.cpu(), batches)
