"""Two towers that begin with weights: their projections are fitted to what the towers know, before the first step.

A random projection into the joint space has to be learned by steps that each cost a pass through both towers, and from
few pairs such a projection is learned by heart. Here each tower sees the training pairs once. The image projection
whitens the image features, and the text projection is the ridge regression from the features of captions to those of
their images: a joint space to begin with, from one pass. A hidden layer of the text projection stays as it was drawn,
but takes off the mean of the captions: with many units, the regression is then that of a kernel, which can give each of
a thousand names its own place where a matrix from 384 features cannot.

Reference: Rahimi and Recht 2008 (random features), https://papers.nips.cc/paper/3495
"""

import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from nearfar.evaluation.embedding import embed, evaluation_mode
from nearfar.modalities.base import Modality
from nearfar.nn.towers import Tower, TwoTowers
from nearfar.nn.whitening import SHRINKAGE
from nearfar.progress import print_line
from nearfar.training.adaptation import pretrained_parts
from nearfar.training.setup import TrainingSetup

MOST = 10_000  # pairs that projections are fitted to, and that a locked tower may keep the features of
RIDGE = 0.03  # of the mean variance of the features of captions
_BATCH = 64


def fit_projections(setup: TrainingSetup, console: Console) -> float:
    """Fit the projections of towers with weights, if the settings say so; the same on every rank and after a resume.

    If the image tower is locked, its features of the training images are kept: no step computes them again.

    Returns:
        The seconds it took.
    """
    towers, data, modality = setup.method.encoder, setup.train, setup.modality
    if setup.config.adapt.projections == "random" or not isinstance(towers, TwoTowers):
        return 0.0
    if data.captions is None or not pretrained_parts(towers.first):
        return 0.0
    begun = time.perf_counter()
    rows = torch.linspace(0, len(data) - 1, min(MOST, len(data))).long().unique()
    towers.to(setup.device)
    h = embed(
        towers.first.encoder, data, prepare=modality.prepare, batch_size=_BATCH, rows=rows, progress="projections"
    )
    if getattr(setup.method, "locked", False) and len(rows) == len(data):
        data.tower_features, towers.first.takes_features = h, True
    whiten = whitening_matrix(h, towers.num_features)  # (F, D)
    _set(towers.first.last, whiten)
    if pretrained_parts(towers.second):
        captions = [data.captions[row][0] for row in rows.tolist()]
        texts = _embedded_texts(towers.second.encoder, captions, modality, setup.device)  # (N, G)
        _set(towers.second.last, ridge(centred_hidden(towers.second, texts), F.normalize(h @ whiten, dim=1)))
    seconds = time.perf_counter() - begun
    print_line(console, f"projections fitted to {len(rows):,} pairs, in {seconds:.0f} s")
    return seconds


def whitening_matrix(h: Tensor, most: int) -> Tensor:
    """(F, D) that makes features h (N, F) equally large in their D = min(F, most) strongest directions.

    V (λ + s · mean λ)^(-1/2) of the largest λ, with those of the second moment hᵀh / N, since a projection has no bias
    that could centre; s as in `fit_transform`. With fewer features than `most`, the rest of the columns are 0.

    >>> h = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    >>> [f"{x:.1f}" for x in (h @ whitening_matrix(h, 2)).abs().amax(1).tolist()]
    ['1.3', '1.0']
    """
    x = h.double()
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    values = values.clamp_min(0)
    mean = values[:-1].mean() if len(values) > 1 else values.mean()  # the largest is that of the mean of all features
    found = vectors * (values + (SHRINKAGE + h.shape[1] / len(h)) * mean).clamp_min(1e-12).rsqrt()
    strongest = found[:, -most:].flip(1).float()  # the strongest first, for those who keep the first numbers alone
    return F.pad(strongest, (0, most - strongest.shape[1]))


def ridge(x: Tensor, y: Tensor) -> Tensor:
    """(G, D) with x · it close to y: (xᵀx + λI)⁻¹ xᵀy, of rows x (N, G) and y (N, D)."""
    moment = (x.T.double() @ x.double()) / len(x)
    moment += RIDGE * moment.diagonal().mean() * torch.eye(len(moment), dtype=torch.float64)
    found: Tensor = torch.linalg.solve(moment, x.T.double() @ y.double() / len(x))
    return found.float()


@torch.no_grad()
def centred_hidden(tower: Tower, h: Tensor) -> Tensor:
    """What the last layer of a projection reads of features h (N, G): (N, H), or h itself without a hidden layer."""
    if not isinstance(tower.projection, nn.Sequential):
        return h
    first = tower.projection[0]
    assert isinstance(first, nn.Linear)
    first.bias.copy_(-(first.weight @ h.mean(0).to(first.weight)))
    hidden: Tensor = tower.projection[:-1](h.to(first.weight))
    return hidden.cpu()


@torch.no_grad()
def _set(projection: nn.Linear, matrix: Tensor) -> None:
    """The matrix (F, D), at the scale of random weights: embeddings are compared by their direction alone."""
    scale = projection.in_features**-0.5 / matrix.std().clamp_min(1e-12)
    projection.weight.copy_((matrix * scale).T)


@torch.no_grad()
def _embedded_texts(encoder: nn.Module, texts: Sequence[str], modality: Modality, device: torch.device) -> Tensor:
    """(N, G), each text read once, however often it occurs."""
    number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    tokens = modality.batch(list(number), "text")
    with evaluation_mode(encoder):
        found = torch.cat([encoder(part.long().to(device)).cpu().float() for part in tokens.split(_BATCH)])
    return found[[number[text] for text in texts]]
