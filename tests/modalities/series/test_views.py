"""Views of series, each against a loop over single series and steps."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nearfar.modalities.series.plot import plot_views
from nearfar.modalities.series.views import (
    SERIES_PRESETS,
    SeriesPreparation,
    SeriesView,
    SeriesViewParameters,
    lengths,
    local_view,
    make_series_views,
    normalized,
    permuted,
    read,
    warped,
)
from tests.support.facts import facts

B, C, T = 6, 2, 23
LENGTHS = [23, 23, 17, 9, 2, 1]


def batch(seed: int = 0) -> Tensor:
    x = torch.randn(B, C, T, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for row, length in enumerate(LENGTHS):
        x[row, :, length:] = torch.nan
    return x


def at(series: list[float], place: float) -> float:
    """A series read between its steps."""
    place = min(max(place, 0.0), len(series) - 1)
    low = math.floor(place)
    high = min(low + 1, len(series) - 1)
    return series[low] + (place - low) * (series[high] - series[low])


def one_permuted(u: float, cuts: list[float], order: list[int]) -> float:
    edges = [0.0, *cuts, 1.0]
    pieces = [(edges[n], edges[n + 1]) for n in order if edges[n + 1] > edges[n]]
    passed = 0.0
    for begin, end in pieces:
        if u < passed + end - begin:
            return begin + u - passed
        passed += end - begin
    return pieces[-1][1]


def one_warped(u: float, speeds: list[float]) -> float:
    total, passed = sum(speeds), 0.0
    for n, speed in enumerate(speeds):
        inside = min(max(u * len(speeds) - n, 0.0), 1.0)
        passed += inside * speed / total
    return passed


def one_view(view: SeriesView, x: Tensor, drawn: SeriesViewParameters, row: int) -> Tensor:
    """The whole view of one series, step by step."""
    length = LENGTHS[row]
    made = torch.full((C, T), torch.nan, dtype=torch.float64)
    for channel in range(C):
        series = x[row, channel, :length].tolist()
        for step in range(length):
            whole = step / max(length - 1, 1)
            u = whole
            if view.segments > 1:
                u = one_permuted(u, drawn.cuts[row].tolist(), drawn.order[row].tolist())
            if view.warp:
                u = one_warped(u, drawn.speeds[row].tolist())
            u = float(drawn.start[row]) + u * float(drawn.width[row])
            value = at(series, u * (length - 1)) * float(drawn.factor[row, channel])
            if view.jitter:
                value += float(drawn.noise[row, channel, step])
            begin, end = drawn.hidden[row].tolist()
            made[channel, step] = 0.0 if view.mask and begin <= whole < end else value
    return made


VIEWS = {
    "nothing": SeriesView(),
    "window": SeriesView(window=(0.3, 0.8)),
    "warp": SeriesView(warp=0.6, stretches=5),
    "permutation": SeriesView(segments=4),
    "scaling": SeriesView(scaling=0.5),
    "jitter": SeriesView(jitter=0.3),
    "mask": SeriesView(mask=0.7),
    "all": SeriesView(window=(0.5, 1.0), warp=0.3, segments=3, scaling=0.2, jitter=0.1, mask=0.4),
}


def as_double(drawn: SeriesViewParameters) -> SeriesViewParameters:
    return SeriesViewParameters(**{k: v.double() if v.is_floating_point() else v for k, v in vars(drawn).items()})


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_its_loop(name: str) -> None:
    view, x = VIEWS[name], batch()
    drawn = as_double(view.draw(B, C, T, torch.Generator().manual_seed(3)))
    made = view.apply(x, drawn)
    for row in range(B):
        torch.testing.assert_close(made[row], one_view(view, x, drawn, row), equal_nan=True, rtol=1e-6, atol=1e-6)
    if name == "nothing":
        assert torch.equal(made.nan_to_num(9.0), x.nan_to_num(9.0))
    else:
        assert not torch.equal(made[0], x[0])


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_keeps_the_lengths(name: str) -> None:
    made = make_series_views(batch().float(), [VIEWS[name]], seed=0, step=0)[0]
    assert torch.equal(made.isnan(), batch().isnan())


def test_chance_stays_within_its_bounds() -> None:
    view = SeriesView(window=(0.3, 0.8), warp=0.5, segments=4, scaling=0.5, jitter=0.2, mask=0.4)
    drawn = view.draw(4000, 1, 10, torch.Generator().manual_seed(0))
    assert drawn.width.min() >= 0.3 and drawn.width.max() <= 0.8 and (drawn.start + drawn.width).max() <= 1 + 1e-6
    assert abs(drawn.width.mean() - 0.55) < 0.01 and abs(drawn.noise.std() - 0.2) < 0.01
    assert abs(drawn.factor.log().std() - 0.5) < 0.03 and abs(drawn.speeds.log().std() - 0.5) < 0.03
    hidden = drawn.hidden[:, 1] - drawn.hidden[:, 0]
    assert hidden.min() >= 0 and hidden.max() <= 0.4 and abs(hidden.mean() - 0.2) < 0.01
    pieces = (drawn.cuts < 1).sum(1) + 1
    assert sorted(pieces.unique().tolist()) == [1, 2, 3, 4] and (pieces.bincount()[1:] > 900).all()
    assert (drawn.cuts.diff(dim=1) >= 0).all() and (drawn.order.sort(1).values == torch.arange(4)).all()


def test_permuted_pieces_are_all_of_the_series() -> None:
    u = torch.linspace(0, 1, 1001, dtype=torch.float64).repeat(2, 1)
    cuts = torch.tensor([[0.2, 0.7], [0.5, 1.0]], dtype=torch.float64)
    order = torch.tensor([[2, 0, 1], [2, 1, 0]])
    found = permuted(u, cuts, order)
    torch.testing.assert_close(found.sort(1).values, u, atol=2e-3, rtol=0)
    torch.testing.assert_close(found[0, :5], u[0, :5] + 0.7)


def test_warped_time_begins_ends_and_never_turns_back() -> None:
    u = torch.linspace(0, 1, 101).repeat(3, 1)
    passed = warped(u, torch.rand(3, 5) + 0.1)
    assert (passed.diff(dim=1) >= -1e-6).all()
    torch.testing.assert_close(passed[:, [0, -1]], torch.tensor([[0.0, 1.0]] * 3))
    torch.testing.assert_close(warped(u, torch.ones(3, 4)), u)


def test_reading_at_the_steps_gives_the_steps() -> None:
    x = batch()
    u = torch.stack([torch.arange(T).double() / max(n - 1, 1) for n in LENGTHS])
    torch.testing.assert_close(read(x, u), x, equal_nan=True)


def test_the_same_seed_and_step_give_the_same() -> None:
    x, views = batch().float(), SERIES_PRESETS["series"]()
    first, again, other = (make_series_views(x, views, seed=1, step=s) for s in (5, 5, 6))
    assert all(torch.equal(a.nan_to_num(9), b.nan_to_num(9)) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0].nan_to_num(9), other[0].nan_to_num(9))
    assert not torch.equal(first[0].nan_to_num(9), first[1].nan_to_num(9))
    alone = make_series_views(x, views[:1], seed=1, step=5)  # a view does not change when another is added
    assert torch.equal(alone[0].nan_to_num(9), first[0].nan_to_num(9))


def test_normalised_by_itself_or_by_the_data() -> None:
    x = batch().float() * 7 + 100
    made = normalized(x)
    for row in range(4):
        for channel in range(C):
            series = x[row, channel, : LENGTHS[row]].double().numpy()
            expected = (series - series.mean()) / series.std()
            np.testing.assert_allclose(made[row, channel, : LENGTHS[row]].numpy(), expected, rtol=1e-4, atol=1e-4)
    assert made[5, 0, 0] == 0.0  # of one step, as of a constant
    assert (normalized(torch.full((1, 1, 50), 0.1)) == 0).all()
    by_data = SeriesPreparation((100.0, 50.0), (7.0, 2.0))(x)
    torch.testing.assert_close(by_data[:, 1], (x[:, 1] - 50) / 2, equal_nan=True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"window": (0.5, 0.2)}, "window is"),
        ({"window": (0.0, 1.0)}, "window is"),
        ({"warp": -1.0}, "warp -1"),
        ({"segments": 0}, "segments 0"),
        ({"mask": 1.5}, "mask 1.5"),
        ({"jitter": float("nan")}, "jitter nan"),
    ],
)
def test_wrong_recipes_are_named(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=facts(words)):
        SeriesView(**wrong)  # type: ignore[arg-type]


def test_views_are_shown_as_lines(tmp_path: Path) -> None:
    path = plot_views(batch().float(), SERIES_PRESETS["series"](), tmp_path / "deep" / "views.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=facts("at least one")):
        plot_views(batch(), (), tmp_path / "none.png")


def test_a_local_view_is_a_short_piece_at_the_same_speed() -> None:
    view = local_view(SeriesView(window=(0.5, 1.0)))
    assert (view.window, view.steps) == ((0.2, 0.4), 0.4)
    x = torch.arange(50.0).repeat(64, 1, 1)
    x[1, :, 21:] = torch.nan  # of 21 steps
    (made,) = make_series_views(x, [view], seed=0, step=0)
    assert made.shape == (64, 1, 20)
    assert lengths(made).tolist() == [20, 9, *[20] * 62]  # nine of 21: rounded up
    whole = made[2:, 0]
    assert whole.diff().min() > 0 and whole.min() >= 0 and whole.max() <= 49
    speed = whole.diff().mean(1)  # of 20 steps, 0.2 to 0.4 of the series
    assert 0.5 <= speed.min() < 0.6 and 0.95 < speed.max() <= 1.04
    with pytest.raises(ValueError, match=facts("--views.local")):
        local_view(SeriesView())
    with pytest.raises(ValueError, match=facts("steps 0.0")):
        SeriesView(steps=0.0)
