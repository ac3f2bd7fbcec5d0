"""Correlation with human scores against scipy and torchmetrics."""

import pytest
import torch
from scipy import stats
from torch import Tensor

from nearfar import _torchvision  # noqa: F401, before torchmetrics
from nearfar.evaluation.protocols.similarity import correlation, pair_cosines, pearson, spearman

from torchmetrics.functional import pearson_corrcoef, spearman_corrcoef  # isort: skip
from tests.support.facts import facts


def pairs(n: int = 300, ties: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first, noise = torch.randn(2, n, 8, generator=generator)
    second = first + noise * torch.rand(n, 1, generator=generator) * 2
    scores = 2.5 + 2 * torch.nn.functional.cosine_similarity(first, second) + torch.randn(n, generator=generator) / 3
    if ties:
        first[::5] = second[::5]  # a fifth of the cosines are 1
        scores = scores.round()
    return first, second, scores


@pytest.mark.parametrize("ties", [False, True])
def test_the_values_are_scipys_and_torchmetrics(ties: bool) -> None:
    first, second, scores = pairs(ties=ties)
    cosines = pair_cosines(first, second)
    expected = torch.nn.functional.cosine_similarity(first.double(), second.double())
    torch.testing.assert_close(cosines, expected, atol=1e-6, rtol=0)
    found = correlation(pair_cosines(first, second), scores).metrics
    assert found["Spearman"].value == pytest.approx(stats.spearmanr(cosines, scores).statistic, abs=1e-12)
    assert found["Pearson"].value == pytest.approx(stats.pearsonr(cosines, scores.double()).statistic, abs=1e-9)
    assert found["Spearman"].value == pytest.approx(float(spearman_corrcoef(cosines, scores.double())), abs=1e-5)
    assert found["Pearson"].value == pytest.approx(float(pearson_corrcoef(cosines, scores.double())), abs=1e-5)
    assert spearman(-cosines, scores) == pytest.approx(-found["Spearman"].value)


@pytest.mark.parametrize("ties", [False, True])
def test_intervals_are_those_of_scipy_on_the_resampled_pairs(ties: bool) -> None:
    first, second, scores = pairs(60, ties=ties)
    cosines = pair_cosines(first, second)
    found = correlation(cosines, scores, count=500).metrics
    generator = torch.Generator().manual_seed(5)
    rows = torch.randint(60, (500, 60), generator=generator)
    for name, theirs in (("Spearman", stats.spearmanr), ("Pearson", stats.pearsonr)):
        drawn = torch.tensor([float(theirs(cosines[r], scores[r]).statistic) for r in rows], dtype=torch.float64)
        shift = float(drawn.mean()) - found[name].value
        low, high = (drawn.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)) - shift).tolist()
        assert found[name].low == pytest.approx(low, abs=0.04) and found[name].high == pytest.approx(high, abs=0.04)


def test_equal_pairs_are_ties_whatever_the_rounding() -> None:
    one = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    assert set(pair_cosines(one, one * torch.linspace(0.3, 3, 50)[:, None]).tolist()) == {1.0}
    assert pair_cosines(torch.zeros(1, 3), torch.ones(1, 3)).tolist() == [0.0]


def test_what_does_not_vary_is_said() -> None:
    one = torch.randn(1, 64).expand(10, 64)
    with pytest.raises(ValueError, match=facts("10 1")):
        correlation(pair_cosines(one, one), torch.arange(10.0))
    with pytest.raises(ValueError, match=facts("3 2")):
        spearman(torch.arange(3.0), torch.full((3,), 2.0))
    with pytest.raises(ValueError, match=facts("1 3 finite")):
        pearson(torch.arange(3.0), torch.tensor([0.0, 1.0, torch.nan]))
    with pytest.raises(ValueError, match=facts("twice")):
        spearman(torch.arange(3.0), torch.arange(4.0))
