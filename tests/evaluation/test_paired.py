"""Encoders compared on the same samples, against plain sums and scipy."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nearfar.evaluation.metrics import accuracy
from nearfar.evaluation.paired import SampleValues, clopper_pearson, compare, mcnemar, mcnemar_p, paired_bootstrap
from nearfar.evaluation.protocols.captions import cross_modal
from nearfar.evaluation.protocols.similarity import correlation, spearman
from nearfar.evaluation.results import Results
from tests.evaluation.bars import Bars, evaluate


def hits(won: int, lost: int, both: int, neither: int) -> tuple[Tensor, Tensor]:
    """Right or wrong of two encoders, with so many samples of each kind."""
    first = [True] * won + [False] * lost + [True] * both + [False] * neither
    second = [False] * won + [True] * lost + [True] * both + [False] * neither
    return torch.tensor(first), torch.tensor(second)


@pytest.mark.parametrize(("won", "lost"), [(7, 0), (0, 7), (10, 3), (5, 5), (60, 41), (1, 0), (900, 1000)])
def test_mcnemars_p_is_the_plain_sum_and_scipys(won: int, lost: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    n, most = won + lost, max(won, lost)
    plain = min(1.0, 2 * sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n)
    assert mcnemar_p(won, lost) == pytest.approx(plain, rel=1e-9)
    assert mcnemar_p(won, lost) == pytest.approx(stats.binomtest(won, n, 0.5).pvalue, rel=1e-9)


@pytest.mark.parametrize(("successes", "n"), [(0, 7), (7, 7), (3, 10), (500, 900)])
def test_the_interval_is_clopper_and_pearsons(successes: int, n: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(successes, n).proportion_ci(0.95, method="exact")
    assert clopper_pearson(successes, n) == pytest.approx(tuple(expected), abs=1e-9)


def test_a_gain_of_7_in_105_is_better_although_the_intervals_overlap() -> None:
    first, second = hits(7, 0, 60, 38)
    labels = torch.ones(105, dtype=torch.long)
    one, other = (accuracy(x.long(), labels) for x in (first, second))
    assert one.low is not None and other.high is not None and one.low < other.high  # unpaired: nothing to see
    found = mcnemar(first, second)
    assert found.value == pytest.approx(7 / 105) and found.p == pytest.approx(0.016, abs=4e-4) and found.n == 105
    assert found.low is not None and found.low > 0


@pytest.mark.parametrize(("won", "lost"), [(6, 0), (5, 0), (9, 1), (8, 1), (17, 6), (16, 6), (0, 6), (0, 5)])
def test_the_interval_leaves_out_zero_just_where_p_is_below_5_percent(won: int, lost: int) -> None:
    found = mcnemar(*hits(won, lost, 20, 20))
    assert found.low is not None and found.high is not None
    assert (not found.low <= 0 <= found.high) == (found.p < 0.05)


def test_no_sample_that_differs_is_no_difference() -> None:
    assert mcnemar(*hits(0, 0, 5, 5)) == (0.0, None, None, 1.0, 10)


def test_mcnemar_rejects_a_true_null_seldom_and_a_swap_changes_only_the_sign() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(400, 2, 80, generator=generator) < 0.6
    assert sum(mcnemar(*pair).p < 0.05 for pair in draws) <= 0.05 * 400
    there, back = mcnemar(*draws[0]), mcnemar(*draws[0].flip(0))
    assert there.value == -back.value and there.p == back.p and there.low == pytest.approx(-(back.high or 0))


def test_the_bootstrap_of_a_mean_is_near_the_normal_interval() -> None:
    generator = torch.Generator().manual_seed(0)
    hard = torch.randn(300, generator=generator)
    first, second = (hard + shift + 0.1 * torch.randn(300, generator=generator) for shift in (0.05, 0.0))
    found = paired_bootstrap(SampleValues(first), SampleValues(second))
    gap = (first - second).double()
    half = 1.96 * float(gap.std()) / math.sqrt(300)
    assert found is not None and found.low is not None and found.high is not None
    assert found.value == pytest.approx(float(gap.mean()))
    assert (found.low, found.high) == pytest.approx((float(gap.mean()) - half, float(gap.mean()) + half), abs=0.003)
    assert found.p < 0.01  # each mean alone is uncertain by 0.11
    equal = paired_bootstrap(SampleValues(first), SampleValues(first))
    assert equal is not None and equal.p == 1.0 and equal.low is None


def test_spearman_is_compared_by_the_metric_itself() -> None:
    generator = torch.Generator().manual_seed(1)
    scores = torch.rand(200, generator=generator)
    noise = torch.randn(200, generator=generator)
    good, poor = scores + 0.2 * noise, scores + 0.4 * noise
    one, other = (correlation(x, scores, count=20) for x in (good, poor))
    found = compare(one.samples["Spearman"], other.samples["Spearman"])
    assert found is not None and found.value == pytest.approx(spearman(good, scores) - spearman(poor, scores))
    assert found.low is not None and found.low > 0 and found.p < 0.05


def test_captions_of_one_image_are_drawn_together() -> None:
    generator = torch.Generator().manual_seed(2)
    images, owner = torch.randn(30, 8, generator=generator), torch.arange(30).repeat_interleave(5)
    texts = images[owner] + torch.randn(150, 8, generator=generator)
    samples = cross_modal(images, texts, owner, count=20).samples
    assert samples["recall@1, image to text"].groups is None
    groups = samples["recall@1, text to image"].groups
    assert groups is not None and groups.tolist() == owner.tolist()
    found = compare(samples["recall@1, text to image"], SampleValues(torch.zeros(150, dtype=torch.bool), groups=groups))
    assert found is not None and found.low is not None and found.n == 150


def test_an_evaluation_has_the_comparisons_and_keeps_them(tmp_path: Path) -> None:
    results = evaluate({"trained": torch.nn.Flatten()}, Bars(200, 0), Bars(80, 1))
    found = {(each.baseline, each.protocol, each.metric) for each in results.comparisons}
    assert found == {("raw", "linear", "accuracy"), ("raw", "knn", "accuracy")} | {
        ("raw", "knn", f"accuracy, k = {k}") for k in (1, 5, 20)
    }
    for each in results.comparisons:
        gap = (results.value("trained", each.protocol, each.metric) or 0) - (
            results.value("raw", each.protocol, each.metric) or 0
        )
        assert each.difference == pytest.approx(gap) and each.role == "baseline" and each.n == 80
    path = results.save(tmp_path / "evaluation.json")
    assert Results.load(path).comparisons == results.comparisons
    again = evaluate({"trained": torch.nn.Flatten()}, Bars(200, 0), Bars(80, 1), protocols=["linear"])
    merged = again.after(Results.load(path))
    assert len(merged.comparisons) == len(results.comparisons)  # what was measured anew replaces what was there


def test_several_seeds_are_averaged_for_each_sample() -> None:
    results = evaluate({"trained": torch.nn.Flatten()}, Bars(200, 0), Bars(80, 1), protocols=["linear"], seeds=[0, 1])
    (found,) = results.comparisons
    gap = (results.value("trained", "linear") or 0) - (results.value("raw", "linear") or 0)
    assert found.difference == pytest.approx(gap)
