"""A run for the gradient certificate: its method at the newest checkpoint, and two batches of its data."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from nearfar.config import TrainConfig
from nearfar.distributed.variants import Subject
from nearfar.model import checkpoint
from nearfar.training.build_method import anchored
from nearfar.training.setup import TrainingSetup


def subject_of_run(folder: Path, rows: int = 12) -> Subject:
    """The method of a run folder, at its newest checkpoint, with two batches of so many training samples."""
    setup = TrainingSetup(TrainConfig.from_yaml(folder / "config.yaml"), Console(quiet=True))
    if checkpoint.numbered(folder / "checkpoints"):
        setup.method.load_state_dict(checkpoint.load_newest(folder / "checkpoints", ("method",))[0]["method"])
    with_anchor = anchored(setup.method, setup.config)
    ids, labels = setup.modality.ids(setup.train), setup.method_labels
    batches = []
    for step, index in enumerate(setup.loader.order(0)[: 2 * rows].split(rows)):
        samples = setup.train.fetch(index)
        views = setup.modality.views(samples, setup.train, index, seed=setup.config.seed, step=step)
        views = [x.clone() for x in views]  # the next are written over these
        guide = None if setup.guide is None else setup.guide.rows(samples, setup.train, index, step=step)
        of_batch = None if labels is None else labels[index]
        batch = setup.modality.as_batch(views, setup.train, index, ids[index], of_batch)
        whole = setup.modality.prepare(samples) if with_anchor else None
        batches.append(replace(batch, guide=guide, whole=whole))
    return Subject(setup.config.method, (with_anchor[0] if with_anchor else setup.method).cpu(), batches)
