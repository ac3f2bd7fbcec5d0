"""Pairs of views of samples, for the report."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding import dropout_enabled
from nearfar.methods import Method
from nearfar.modalities.base import Modality
from nearfar.nn.whitening import EmbeddingTransform
from nearfar.report.samples import Positives


def two_views(
    method: Method, modality: Modality, dataset: Dataset, transform: EmbeddingTransform | None = None
) -> Callable[[Tensor], Positives | None]:
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
                views = modality.pair_of_views(samples, dataset, part, seed=0, step=number)
                alone = views[0] is views[1]
                with dropout_enabled(method.encoder, number, device) if alone else nullcontext():
                    z1, z2 = method.embed_pair(views)
                if alone and torch.equal(z1, z2):
                    return None
                z1, z2 = (z if transform is None else transform(z) for z in (z1, z2))
                first.append(z1.float().cpu())
                second.append(z2.float().cpu())
        finally:
            method.encoder.train(training)
        return Positives(torch.cat(first), torch.cat(second), len(modality.queries) > 1)

    return embedded
