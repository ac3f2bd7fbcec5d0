"""Dynamic time warping, exact: the distance of two series where each may wait for the other."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.evaluation.classification import STYLES
from nearfar.evaluation.metrics import proportion
from nearfar.evaluation.paired import SampleValues
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Part, Task
from nearfar.progress import progress_bar
from nearfar.settings import setting

_FAR = 1e15  # stands behind the ends of series; its square is still a float32


@dataclass(frozen=True)
class DtwSettings:
    """Protocol dtw: the nearest training series by dynamic time warping."""

    window: float = setting(
        1.0, "largest distance from the diagonal, as a fraction of the longer series", least=0, most=1
    )
    max_cells: float = setting(5e9, "limit, about one minute; larger data are not measured")


def dtw(task: Task, settings: DtwSettings, seed: int) -> Outcome:
    """The nearest training series by dynamic time warping, and by Euclid, over the prepared series themselves."""
    train, test = (_series(task, part) for part in (task.train, task.test))
    longest = max(train.shape[2], test.shape[2])
    if (cells := len(train) * len(test) * longest**2 * min(1.0, 2 * settings.window)) > settings.max_cells:
        raise ValueError(
            f"{len(train):,} × {len(test):,} series of {longest} steps are {cells:.1e} cells, more than "
            f"{settings.max_cells:.1e}; raise --protocols.dtw.max_cells, or set a smaller --protocols.dtw.window"
        )
    with progress_bar(task.progress("dynamic time warping"), len(test)) as advance:
        index = nearest_by_dtw(test, train, window=settings.window, advance=advance)
    plain = torch.cdist(task.test_features, task.train_features).argmin(1)
    right, euclidean = (task.train.labels[found] == task.test.labels for found in (index, plain))
    found = {"accuracy": right, "accuracy, Euclidean": euclidean}
    return Outcome(
        {metric: proportion(hits) for metric, hits in found.items()},
        samples={metric: SampleValues(hits) for metric, hits in found.items()},
    )


def _series(task: Task, part: Part) -> Tensor:
    """(N, C, T) prepared series."""
    found = task.embedder.prepare(part.fetch(torch.arange(len(part))))
    if found.ndim != 3:
        raise ValueError(f"the {part.name} part has no series, which dynamic time warping compares")
    return found


@torch.no_grad()
def dtw_distances(
    x: Tensor, y: Tensor, *, window: float = 1.0, advance: Callable[[int], None] = lambda done: None
) -> Tensor:
    """(N, M), the smallest Euclidean length of any warping path between each two series.

    `D(i, j) = |x_i - y_j|² + min(D(i-1, j), D(i, j-1), D(i-1, j-1))`, and the root of its last; one of x against all of
    y at a time, along the anti-diagonals of D, whose cells do not depend on each other.

    Args:
        x, y: (N, C, S) and (M, C, T), NaN behind the end of a shorter series.
        window: Sakoe and Chiba's: paths stay within this fraction of the longer series from the diagonal; 1: anywhere.
            It is at least as wide as the difference of the lengths.
        advance: called after each of the N with 1.

    Reference: Sakoe and Chiba 1978, https://doi.org/10.1109/TASSP.1978.1163055

    >>> x, y = torch.tensor([[[0.0, 1.0, 2.0]]]), torch.tensor([[[0.0, 0.0, 1.0, 2.0]], [[0.0, 1.0, 2.0, 3.0]]])
    >>> dtw_distances(x, y).tolist()
    [[0.0, 1.0]]
    """
    if x.ndim != 3 or y.ndim != 3 or x.shape[1] != y.shape[1]:
        raise ValueError(f"series have shapes {tuple(x.shape)} and {tuple(y.shape)}, expected (N, C, S) and (M, C, T)")
    if not 0 <= window <= 1:
        raise ValueError(f"window is {window}, expected a fraction from 0 to 1")
    keys, ends = _backwards(y)
    found = x.new_empty(len(x), len(y))
    for row, series in enumerate(x):
        found[row] = _one_against_all(_ended(series), keys, ends, window)
        advance(1)
    return found.sqrt_()


def nearest_by_dtw(
    x: Tensor, y: Tensor, *, window: float = 1.0, advance: Callable[[int], None] = lambda done: None
) -> Tensor:
    """(N,), which of y is nearest to each of x; the first of equals."""
    return dtw_distances(x, y, window=window, advance=advance).argmin(1)


def _backwards(y: Tensor) -> tuple[Tensor, Tensor]:
    """(C, T, M), the series from their last step to their first, and (M,) how many steps they have."""
    return y.permute(1, 2, 0).flip(1).nan_to_num(_FAR).contiguous(), (~y.isnan().all(1)).sum(1)


def _ended(series: Tensor) -> Tensor:
    """(C, S) without what is behind the end."""
    return series[:, ~series.isnan().all(0)].nan_to_num(0.0)


def _one_against_all(x: Tensor, keys: Tensor, ends: Tensor, window: float) -> Tensor:
    """(M,) squared distances of x (C, S) to the keys (C, T, M), given backwards, of `ends` steps."""
    steps, longest, many = x.shape[1], keys.shape[1], keys.shape[2]
    found = torch.full((many,), torch.inf, dtype=x.dtype)
    reach = _reach(steps, ends, window)  # (M,)
    # D along a diagonal, by i; row 0 stands before the first step.
    older, old, new = (torch.full((steps + 1, many), torch.inf, dtype=x.dtype) for _ in range(3))
    older[0] = 0.0  # before both series
    cost, part = (torch.empty(steps, many, dtype=x.dtype) for _ in range(2))
    last, widest, uneven = steps - 2 + ends, int(reach.max()), bool((reach != reach[0]).any())
    final = set(last.tolist())  # diagonals on which some key ends with x
    for d in range(steps + longest - 1):
        low = max(0, d - longest + 1, (d - widest + 1) // 2)
        high = min(steps - 1, d, (d + widest) // 2) + 1
        if low < high:
            begin = longest - 1 - d + low  # of y backwards, so that i + j = d
            c, p = cost[low:high], part[low:high]
            torch.sub(x[0, low:high, None], keys[0, begin : begin + high - low], out=c).square_()
            for channel in range(1, len(x)):
                torch.sub(x[channel, low:high, None], keys[channel, begin : begin + high - low], out=p)
                c.addcmul_(p, p)
            torch.minimum(old[low:high], old[low + 1 : high + 1], out=p)
            torch.minimum(p, older[low:high], out=p)
            torch.add(c, p, out=new[low + 1 : high + 1])
            if uneven:  # keys of a narrower window
                off = (2 * torch.arange(low, high) - d).abs().unsqueeze(1) > reach
                new[low + 1 : high + 1].masked_fill_(off, torch.inf)
        new[: low + 1], new[high + 1 :] = torch.inf, torch.inf  # what is left of three diagonals before
        if d in final:
            ended = last == d
            found[ended] = new[steps, ended]
        older, old, new = old, new, older
    return found


def _reach(steps: int, ends: Tensor, window: float) -> Tensor:
    """(M,), how far apart i and j may be."""
    longer = ends.clamp(min=steps)
    return torch.maximum((window * longer).ceil().long(), (ends - steps).abs())


PROTOCOL = Protocol(
    "dtw",
    dtw,
    "nearest neighbor by dynamic time warping, of series",
    "accuracy",
    DtwSettings,
    shared=(),
    raw_only=True,
    rival_of="knn",
    metrics=STYLES,
)
