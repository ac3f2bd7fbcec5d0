"""What the report shows of single samples: taken at the end of a run or an evaluation, kept beside it."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding import Encoder, Prepare
from nearfar.methods import Method
from nearfar.modalities.base import Modality
from nearfar.modalities.image_text.modality import Pairs
from nearfar.report.samples import SAMPLES, Pictures, Positives, Samples, take_samples
from nearfar.training.online_evaluation import dropping


def look(
    folder: Path,
    encoder: Encoder,
    dataset: Dataset,
    *,
    prepare: Prepare,
    pictures: Pictures,
    data: str,
    split: str,
    seed: int,
    ids: Tensor | None = None,
    positives: Callable[[Tensor], Positives | None] | None = None,
) -> str | None:
    """Write `report/samples.npz` as `take_samples` finds them; what goes wrong is a line, and costs nothing else."""
    try:
        take_samples(
            encoder,
            dataset,
            prepare=prepare,
            pictures=pictures,
            ids=ids,
            positives=positives,
            data=data,
            split=split,
            seed=seed,
        ).save(folder)
    except Exception as error:  # a picture in a report is not worth the numbers of a run
        return f"the report shows no single samples: {' '.join(str(error).split()) or type(error).__name__}"
    return None


def looked_at(folder: Path, data: str, split: str) -> bool:
    """Whether the samples of these data are there already: the encoder of a run does not change."""
    try:
        return bool(Samples.load(folder / SAMPLES).data[:2].tolist() == [data, split])
    except Exception:  # absent or broken
        return False


def two_views(method: Method, modality: Modality, dataset: Dataset) -> Callable[[Tensor], Positives | None]:
    """Samples of a data set to their embeddings as validation compares them; where dropout makes the views, by it.

    None where nothing tells the two apart: there is no dropout.
    """

    @torch.no_grad()
    def embedded(rows: Tensor) -> Positives | None:
        device, training = next(method.parameters()).device, method.encoder.training
        method.encoder.eval()
        first, second = [], []
        try:
            for number, part in enumerate(rows.split(256)):
                samples = dataset.fetch(part).to(device)
                views = modality.two_views(samples, dataset, part, seed=0, step=number)
                alone = views[0] is views[1]
                with dropping(method.encoder, number, device) if alone else nullcontext():
                    z1, z2 = method.embed_pair(views)
                if alone and torch.equal(z1, z2):
                    return None
                first.append(z1.float().cpu())
                second.append(z2.float().cpu())
        finally:
            method.encoder.train(training)
        return Positives(torch.cat(first), torch.cat(second), isinstance(modality, Pairs))

    return embedded
