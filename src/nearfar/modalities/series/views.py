"""Views of series: other speed, other height, a piece of it, noise; whole batches, from an explicit generator.

Series are (B, C, T), NaN behind the end of a shorter one; a view has the lengths of what it shows. Where a view reads
is a map of time: the part u of a series, from 0 to 1, is taken from the part `map(u)`. Maps follow one another,
and values are read once, along the line between two steps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from nearfar.nn.arguments import check_probability
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.shard import Shard


@dataclass(frozen=True)
class SeriesViewParameters:
    """What chance decided for B series of C channels and T steps."""

    start: Tensor  # (B,) and
    width: Tensor  # (B,) of the window, as parts of the series
    speeds: Tensor  # (B, K) of equal stretches of time
    cuts: Tensor  # (B, S - 1) rising, where the series is cut; 1 where there is no cut
    order: Tensor  # (B, S) which segment comes where
    factor: Tensor  # (B, C) of the values
    noise: Tensor  # (B, C, T) added to them
    hidden: Tensor  # (B, 2) begin and end of the hidden stretch, as parts of the series

    def of(self, shard: Shard) -> "SeriesViewParameters":
        """What was drawn for the rows of one process."""
        kept = {field.name: shard.select(getattr(self, field.name)) for field in fields(self) if field.name != "noise"}
        return SeriesViewParameters(**kept, noise=self.noise if self.noise.numel() == 1 else shard.select(self.noise))


@dataclass(frozen=True)
class SeriesView:
    """One recipe for a random view of a series, whose values are normalised; the fields' defaults change nothing.

    Attributes:
        window: least and most of the part that is cut out at random and stretched to the length of the whole.
        warp: deviation of the logarithm of the speed, anew for each of `stretches` equal stretches of time.
        segments: at most so many pieces, cut at random, change places.
        scaling: deviation of the logarithm of each channel's factor.
        jitter: deviation of the noise on every value, in the series' own unit.
        mask: at most this part, in one piece, is set to 0, the mean of what is normalised.
        steps: of the view, as a part of those of the series.

    References: Um et al. 2017 (all but the window), https://arxiv.org/abs/1706.00527; Le Guennec et al. 2016 (window
    slicing), https://shs.hal.science/halshs-01357973
    """

    window: tuple[float, float] = (1.0, 1.0)
    warp: float = 0.0
    stretches: int = 4
    segments: int = 1
    scaling: float = 0.0
    jitter: float = 0.0
    mask: float = 0.0
    steps: float = 1.0

    def __post_init__(self) -> None:
        low, high = self.window
        if not 0 < low <= high <= 1:
            raise ValueError(f"window is {self.window}, expected two fractions above 0 and up to 1, the smaller first")
        for name in ("warp", "scaling", "jitter"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 0")
        for name in ("stretches", "segments"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        check_probability("mask", self.mask)
        if not 0 < self.steps <= 1:
            raise ValueError(f"steps is {self.steps}, expected a fraction of the series above 0 and up to 1")

    def draw(self, rows: int, channels: int, steps: int, generator: torch.Generator) -> SeriesViewParameters:
        """All that is random of a batch, on the CPU, so that all devices get the same."""

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        low, high = self.window
        width = low + (high - low) * uniform(rows)
        many = 1 + (uniform(rows, 1) * self.segments).long().clamp(max=self.segments - 1)  # (B, 1) pieces
        cuts = uniform(rows, self.segments - 1)
        unused = torch.arange(self.segments - 1) >= many - 1
        hidden = self.mask * uniform(rows)
        begin = uniform(rows) * (1 - hidden)
        return SeriesViewParameters(
            start=uniform(rows) * (1 - width),
            width=width,
            speeds=(self.warp * normal(rows, self.stretches)).exp(),
            cuts=cuts.masked_fill(unused, 1.0).sort(1).values,
            order=uniform(rows, self.segments).argsort(1),
            factor=(self.scaling * normal(rows, channels)).exp(),
            noise=self.jitter * normal(rows, channels, self._shorter(steps)) if self.jitter else torch.zeros(1, 1, 1),
            hidden=torch.stack([begin, begin + hidden], 1),
        )

    def apply(self, x: Tensor, drawn: SeriesViewParameters) -> Tensor:
        """(B, C, T) to (B, C, T), or to fewer steps."""
        long = lengths(x)
        kept = long if self.steps == 1 else (long * self.steps).ceil().long()
        u = parts_of_time(self._shorter(x.shape[-1]), kept)  # (B, T)
        hidden = drawn.hidden.to(x.device)
        masked = (u >= hidden[:, :1]) & (u < hidden[:, 1:]) if self.mask else None
        if self.segments > 1:
            u = permuted(u, drawn.cuts.to(x.device), drawn.order.to(x.device))
        if self.warp:
            u = warped(u, drawn.speeds.to(x.device))
        if self.window != (1.0, 1.0):
            u = drawn.start.to(x.device)[:, None] + u * drawn.width.to(x.device)[:, None]
        if self.segments > 1 or self.warp or self.window != (1.0, 1.0) or self.steps < 1:
            x = read(x, u, kept)
        x = x * drawn.factor.to(x)[:, :, None] + drawn.noise.to(x)
        return x if masked is None else x.masked_fill(masked[:, None] & ~x.isnan(), 0.0)

    def _shorter(self, steps: int) -> int:
        return steps if self.steps == 1 else math.ceil(steps * self.steps)


@dataclass(frozen=True)
class SeriesPreparation:
    """What series go through before views and encoder: (B, C, T) to (B, C, T).

    Attributes:
        mean, std: of each channel over all training series; None: every channel of every series by its own.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def words(self) -> str:
        return (
            "every series to mean 0 and deviation 1" if self.mean is None else "mean and deviation of the training data"
        )

    def __call__(self, x: Tensor) -> Tensor:
        if self.mean is None or self.std is None:
            return normalized(x)
        mean, std = (torch.tensor(values, dtype=torch.float64, device=x.device) for values in (self.mean, self.std))
        return ((x - mean[:, None]) / std[:, None]).to(x.dtype)


def normalized(x: Tensor) -> Tensor:
    """Every channel of every series to mean 0 and deviation 1 over its own steps; a constant one to 0.

    >>> normalized(torch.tensor([[[1.0, 3.0, torch.nan]], [[5.0, 5.0, 5.0]]])).tolist()
    [[[-1.0, 1.0, nan]], [[0.0, 0.0, 0.0]]]
    """
    wide = x.double()
    wide = wide - wide.nanmean(-1, keepdim=True)
    deviation = wide.square().nanmean(-1, keepdim=True).sqrt()
    size = x.abs().nan_to_num(0.0).amax(-1, keepdim=True).double()
    constant = deviation <= 1e-6 * size  # what float32 leaves of a constant
    return torch.where(constant, wide * 0, wide / deviation.masked_fill(constant, 1.0)).to(x.dtype)


def lengths(x: Tensor) -> Tensor:
    """(B,), the steps of each series."""
    steps = torch.arange(1, x.shape[-1] + 1, device=x.device)
    return (steps * ~x.isnan().all(1)).amax(1)


def parts_of_time(steps: int, long: Tensor) -> Tensor:
    """(B, T): 0 at the first of T steps, 1 at the last of a series' own (B,), more behind it."""
    # In float64: float32 would be too coarse for long series.
    number = torch.arange(steps, device=long.device, dtype=torch.float64)
    return number / (long[:, None] - 1).clamp(min=1)


def read(x: Tensor, u: Tensor, kept: Tensor | None = None) -> Tensor:
    """The series at the parts u (B, T) of their time, along the line between two steps; NaN behind their ends.

    Args:
        kept: (B,) steps of what is read; None: as many as each series has.
    """
    last = (lengths(x) - 1)[:, None]  # (B, 1)
    behind = torch.arange(u.shape[1], device=x.device) > (last if kept is None else kept[:, None] - 1)  # (B, T)
    place = (u * last).clamp(min=0).minimum(last)  # (B, T)
    before = place.floor()
    share = (place - before)[:, None].to(x.dtype)
    index = before.long()[:, None].expand(-1, x.shape[1], -1)
    after = (index + 1).minimum(last[:, :, None])
    value = torch.lerp(x.gather(2, index), x.gather(2, after), share)
    return value.masked_fill(behind[:, None], torch.nan)


def warped(u: Tensor, speeds: Tensor) -> Tensor:
    """The time that has passed at the parts u (B, T), where each of K equal stretches has a speed (B, K) of its own."""
    many = speeds.shape[1]
    share = (speeds / speeds.sum(1, keepdim=True)).to(u)
    begun = share.cumsum(1) - share  # (B, K)
    stretch = (u * many).long().clamp(0, many - 1)  # (B, T)
    return begun.gather(1, stretch) + (u * many - stretch) * share.gather(1, stretch)


def permuted(u: Tensor, cuts: Tensor, order: Tensor) -> Tensor:
    """The parts u (B, T) of a series whose pieces, cut at `cuts` (B, S - 1), come in the order (B, S)."""
    cuts = cuts.to(u)
    edges = torch.cat([torch.zeros_like(cuts[:, :1]), cuts, torch.ones_like(cuts[:, :1])], 1)  # (B, S + 1)
    begin, width = edges[:, :-1].gather(1, order), edges.diff(dim=1).gather(1, order)  # as they now come
    end = width.cumsum(1)  # (B, S)
    piece = torch.searchsorted(end.contiguous(), u.contiguous(), right=True)
    # The last step is of the last piece that has a width, though the sum of widths may be a little below 1.
    filled = torch.arange(end.shape[1], device=u.device) * (width > 0)
    piece = piece.minimum(filled.amax(1, keepdim=True))
    inside = (u - (end - width).gather(1, piece)).minimum(width.gather(1, piece))
    return begin.gather(1, piece) + inside


def contrast_views() -> tuple[SeriesView, ...]:
    """Two equal views: a large part of the series, a little faster or slower here and there, higher or lower, noisy."""
    view = SeriesView(window=(0.7, 1.0), warp=0.2, scaling=0.2, jitter=0.1, mask=0.1)
    return view, view


def strong_views() -> tuple[SeriesView, ...]:
    """The same, stronger, and pieces change places: where order in the large does not matter, as in recordings."""
    view = SeriesView(window=(0.4, 1.0), warp=0.4, segments=3, scaling=0.4, jitter=0.2, mask=0.2)
    return view, view


def whole() -> tuple[SeriesView, ...]:
    """One view, the series itself: of methods that find their task in the order of time, as CPC does."""
    return (SeriesView(),)


def local_view(view: SeriesView, part: float = 0.4) -> SeriesView:
    """A view of a small piece in as few steps, at the speed of the given one."""
    if view == SeriesView():
        raise ValueError("--views.local needs views that crop, and this preset does not; choose another --views.preset")
    low, high = view.window
    return replace(view, window=(part * low, part * high), steps=part)


SERIES_PRESETS: dict[str, Callable[[], tuple[SeriesView, ...]]] = {
    "series": contrast_views,
    "series_strong": strong_views,
    "whole": whole,
}


def make_series_views(
    x: Tensor, views: Sequence[SeriesView], *, seed: int, step: int, shard: Shard | None = None
) -> list[Tensor]:
    """The views of one training step, each (B, C, T): the same seed and step always give the same, on every device.

    Args:
        shard: of a batch that several processes share: the views are those that one process would make of all.
    """
    made = []
    for index, view in enumerate(views):
        drawn = view.draw(
            len(x) if shard is None else shard.total, x.shape[1], x.shape[2], seeded_generator(seed, step, index)
        )
        made.append(view.apply(x, drawn if shard is None else drawn.of(shard)))
    return made


@torch.no_grad()
def jittered(x: Tensor, generator: torch.Generator) -> Tensor:
    """(B, C, T) series as they are, a little faster or slower and higher or lower, for training on labels."""
    view = SeriesView(window=(0.9, 1.0), warp=0.1, scaling=0.1)
    return view.apply(x, view.draw(len(x), x.shape[1], x.shape[2], generator))
