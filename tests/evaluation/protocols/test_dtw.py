"""Dynamic time warping against the plain dynamic programme, cell by cell in float64."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.dtw import DtwSettings, dtw_distances, nearest_by_dtw
from nearfar.modalities.series.data import SeriesDataset
from tests.evaluation.bars import evaluate
from tests.support.facts import facts


def reference(x: Tensor, y: Tensor, window: float) -> float:
    """sqrt of D(S, T), D(i, j) = |x_i - y_j|² + min(D(i-1, j), D(i, j-1), D(i-1, j-1)), within the window."""
    a, b = (s[:, ~s.isnan().any(0)].double().numpy() for s in (x, y))
    s, t = a.shape[1], b.shape[1]
    reach = max(math.ceil(window * max(s, t)), abs(s - t))
    table = np.full((s + 1, t + 1), np.inf)
    table[0, 0] = 0.0
    for i in range(s):
        for j in range(t):
            if abs(i - j) <= reach:
                cost = ((a[:, i] - b[:, j]) ** 2).sum()
                table[i + 1, j + 1] = cost + min(table[i, j + 1], table[i + 1, j], table[i, j])
    return math.sqrt(table[s, t])


@pytest.mark.parametrize("window", [1.0, 0.5, 0.2, 0.0])
@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_distances_are_the_plain_programmes(channels: int, unequal: bool, window: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, channels, 12, generator=generator, dtype=torch.float64)
    y = torch.randn(5, channels, 15 if unequal else 12, generator=generator, dtype=torch.float64)
    if unequal:
        for series, length in ((x[1], 7), (x[3], 1), (y[0], 3), (y[2], 12), (y[4], 1)):
            series[:, length:] = torch.nan
    found = dtw_distances(x, y, window=window)
    for i in range(len(x)):
        for j in range(len(y)):
            assert math.isclose(found[i, j], reference(x[i], y[j], window), rel_tol=1e-10), (i, j)


def test_a_window_of_nothing_is_euclid_and_a_wider_one_never_longer() -> None:
    x, y = torch.randn(2, 6, 2, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(dtw_distances(x, y, window=0.0), torch.cdist(x.flatten(1), y.flatten(1)))
    bands = torch.stack([dtw_distances(x, y, window=b) for b in (0.0, 0.1, 0.3, 1.0)])
    assert (bands.diff(dim=0) <= 1e-12).all()
    torch.testing.assert_close(dtw_distances(x, x).diagonal(), torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(dtw_distances(x, y), dtw_distances(y, x).T)


def test_single_precision_is_enough() -> None:
    x, y = torch.randn(2, 5, 1, 60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(dtw_distances(x.float(), y.float()).double(), dtw_distances(x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", [1.0, 0.1])
@pytest.mark.parametrize("unequal", [False, True])
def test_the_nearest_is_that_of_all_distances(unequal: bool, window: float) -> None:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(12, 2, 70, generator=generator), torch.randn(90, 2, 70, generator=generator)
    x[:, :, 10:] += 3 * torch.randn(12, 2, 1, generator=generator)  # some are far from most
    y[50:] = y[:40]  # equals: the first is taken
    if unequal:
        for row in range(0, 90, 7):
            y[row, :, 60 - row // 3 :] = torch.nan
    assert torch.equal(nearest_by_dtw(x, y, window=window), dtw_distances(x, y, window=window).argmin(1))


def test_a_shifted_copy_is_the_nearest() -> None:
    time = torch.arange(40.0)
    train = torch.stack([torch.exp(-(((time - 12) / 3) ** 2)), torch.zeros(40) + 0.4])[:, None]
    test = torch.exp(-(((time - 25) / 3) ** 2))[None, None]
    assert nearest_by_dtw(test, train).tolist() == [0] and torch.cdist(test[:, 0], train[:, 0]).argmin() == 1


def test_wrong_arguments_are_named() -> None:
    x = torch.zeros(2, 1, 5)
    with pytest.raises(ValueError, match=facts("window 2")):
        dtw_distances(x, x, window=2)
    with pytest.raises(ValueError, match=facts("(2, 1, 5) (2, 2, 5)")):
        dtw_distances(x, torch.zeros(2, 2, 5))


def labelled(shift: int) -> SeriesDataset:
    time, places = torch.arange(30.0), torch.tensor([8.0, 10.0, 12.0, 14.0]) + shift
    peaks = torch.exp(-(((time - places[:, None]) / 2) ** 2))
    values = torch.cat([peaks, -peaks])[:, None]
    return SeriesDataset(values, labels=torch.tensor([0] * 4 + [1] * 4), classes=["up", "down"])


def test_the_protocol_is_of_raw_series_alone() -> None:
    encoders = {"trained": torch.nn.Flatten(), "untrained": torch.nn.Flatten()}
    found = evaluate(encoders, labelled(0), labelled(6), prepare=lambda x: x, protocols=["knn", "dtw"])
    assert {row.encoder for row in found.rows if row.protocol == "dtw"} == {"raw"}
    assert found.value("raw", "dtw", "accuracy") == 1.0
    (rival,) = (each for each in found.comparisons if (each.encoder, each.baseline) == ("trained", "raw by dtw"))
    assert (rival.protocol, rival.metric, rival.role, rival.n) == ("knn", "accuracy", "baseline", 8)
    assert rival.difference == (found.value("trained", "knn") or 0) - 1.0  # k-NN of features beside DTW of raw series
    few = ProtocolConfig(dtw=DtwSettings(max_cells=10))
    found = evaluate(encoders, labelled(0), labelled(6), prepare=lambda x: x, protocols=["dtw"], settings=few)
    assert not found.rows and any("--protocols.dtw.max_cells" in note for note in found.notes)
