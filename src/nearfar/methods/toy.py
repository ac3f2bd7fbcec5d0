"""Tiny methods with batches for them, for the certificate and the tests: the encoders and batches that they share."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.methods.method import Batch, Toy
from nearfar.nn.text import TextEncoder
from nearfar.nn.towers import TwoTowers

SAMPLES = 64  # of the data set that the batches are from
_WORDS, _LENGTH = 40, 8
Views = Callable[[int, torch.Generator], list[Tensor]]  # for so many rows


class ToyImageEncoder(nn.Sequential):
    """(B, 3, 6, 6), or other sizes, to (B, 16), with BatchNorm and dropout."""

    num_features = 16

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.Tanh(),
            nn.AdaptiveAvgPool2d(4),  # views of 6 pixels stay as they are; smaller ones fit, too
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(128, 16),
        )


def toy_text_encoder() -> TextEncoder:
    return TextEncoder(_WORDS, _LENGTH, width=16, layers=1, heads=2, dropout=0.1)


def toy_towers() -> TwoTowers:
    return TwoTowers(ToyImageEncoder(), toy_text_encoder(), embed_dim=8)


def image_views(rows: int, generator: torch.Generator) -> list[Tensor]:
    """(B, 3, 6, 6) twice."""
    x = torch.randn(rows, 3, 6, 6, generator=generator, dtype=torch.float64)
    return [x, x + 0.5 * torch.randn(x.shape, generator=generator, dtype=torch.float64)]


def text_views(rows: int, generator: torch.Generator) -> list[Tensor]:
    """Tokens (B, 8) of texts of several lengths."""
    tokens = torch.randint(4, _WORDS, (rows, _LENGTH), generator=generator)
    ends = torch.randint(3, _LENGTH - 1, (rows, 1), generator=generator)
    return [tokens.masked_fill(torch.arange(_LENGTH) >= ends, 0)]


def text_pair_views(rows: int, generator: torch.Generator) -> list[Tensor]:
    """Tokens of texts and of their partners."""
    return [*text_views(rows, generator), *text_views(rows, generator)]


def pair_views(rows: int, generator: torch.Generator) -> list[Tensor]:
    """Images and their captions."""
    return [image_views(rows, generator)[0], *text_views(rows, generator)]


def toy_batch(views: Views = image_views, *, rows: int = 12, seed: int = 0) -> Batch:
    """Two samples share an id."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randperm(SAMPLES, generator=generator)[:rows]
    ids = index.clone()
    ids[-1] = ids[0]
    return Batch(views(rows, generator), index, ids, labels=torch.arange(rows) % 3)


def toy_method(
    method: type[Any],
    rows: int = 12,
    *,
    encoder: Callable[[], nn.Module] = ToyImageEncoder,
    views: Views = image_views,
    **options: Any,
) -> Toy:
    """The method on a small encoder, the same weights every time, and two batches of so many rows.

    Args:
        options: the paper's widths, cut down; a subclass with a constructor of its own is given those that it has.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = encoder()
        own = {name: value for name, value in options.items() if name in method.options()}
        small = method(made, features=made.num_features, samples=SAMPLES, **own)
    batches = [toy_batch(views, rows=rows, seed=seed) for seed in range(2)]
    return small, [replace(each, views=each.views[: getattr(method, "usual_views", None)]) for each in batches]


def guided(toy: Toy, *, negatives: int = 0, features: int = 5) -> Toy:
    """A toy whose batches have embeddings of a guide, in float32 as a run has them, and so many hard negatives."""
    method, batches = toy
    made = []
    for number, batch in enumerate(batches):
        generator, rows = torch.Generator().manual_seed(7 + number), len(batch.index)
        more = [text_views(rows, generator)[0] for _ in range(negatives)]
        for x in more:
            x[0] = batch.views[1][1]  # the words of another's partner, which it must not be pushed away from
        views = [*batch.views, *more]
        guide = torch.randn(rows, len(views), features, generator=generator)
        made.append(replace(batch, views=views, negatives=negatives, guide=guide))
    return method, made


def with_more_views(toy: Toy, full: int = 3, local: int = 2) -> Toy:
    """A toy whose batches have so many views: copies with noise, local ones of the inner pixels; texts are repeated."""
    method, batches = toy
    return method, [_with_more_views(each, full, local, seed) for seed, each in enumerate(batches)]


def _with_more_views(batch: Batch, full: int, local: int, seed: int) -> Batch:
    generator, x = torch.Generator().manual_seed(100 + seed), batch.views[0]
    if not x.is_floating_point():
        return replace(batch, views=[x] * full, negatives=0)

    def noisy(view: Tensor) -> Tensor:
        return view + 0.5 * torch.randn(view.shape, generator=generator, dtype=view.dtype)

    views = [*batch.views, *(noisy(x) for _ in range(full))][:full]
    return replace(batch, views=[*views, *(noisy(x[..., 1:-1, 1:-1]) for _ in range(local))], local=local)
