"""Every metric of class scores against scikit-learn, and the intervals against what they must be."""

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import Tensor

from nearfar.evaluation.classification import BINS, classification, imbalance, lonely, weighted_metrics
from nearfar.evaluation.metrics import Estimate, mean_estimate, over_seeds, resamples, with_interval
from nearfar.evaluation.results import bounds
from nearfar.metric_text import SHARE, MetricStyle
from tests.support.facts import tells


def scored(n: int = 400, classes: int = 7, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Scores that lean towards the truth, rounded so that some are equal; class 6 never occurs."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes - 1, (n,), generator=generator)
    logits = torch.randn(n, classes, generator=generator) + 1.5 * torch.nn.functional.one_hot(labels, classes)
    scores = (logits.softmax(1) * 20).round() / 20 + 1e-3
    return scores / scores.sum(1, keepdim=True), labels


def test_values_are_those_of_scikit_learn() -> None:
    scores, labels = scored()
    found = classification(scores, labels, classes=7, count=20, seed=0)
    s, y, guess = scores.numpy(), labels.numpy(), scores.argmax(1).numpy()
    truth = np.eye(7)[y]
    expected = {
        "accuracy": sk.accuracy_score(y, guess),
        "top-5 accuracy": sk.top_k_accuracy_score(6 - y, s[:, ::-1], k=5, labels=range(7)),  # of equals, its last
        "balanced accuracy": sk.recall_score(y, guess, average="macro", labels=range(6)),
        "precision macro": sk.precision_score(y, guess, average="macro", zero_division=0),
        "F1 macro": sk.f1_score(y, guess, average="macro", zero_division=0),
        "AUC": sk.roc_auc_score(truth[:, :6], s[:, :6], average="macro"),
        "AP": sk.average_precision_score(truth[:, :6], s[:, :6], average="macro"),
    }
    for name, value in expected.items():
        assert found.metrics[name].value == pytest.approx(value, abs=2e-6), name
    assert found.metrics["accuracy"].value == pytest.approx(sk.f1_score(y, guess, average="micro"))
    assert np.array_equal(found.curves["confusion"], sk.confusion_matrix(y, guess, labels=range(7)))
    per_class = sk.precision_recall_fscore_support(y, guess, labels=range(7), zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "support"), per_class, strict=True):
        np.testing.assert_allclose(found.curves[name], values, atol=1e-6)


def test_calibration_error_is_the_papers_sum() -> None:
    scores, labels = scored()
    confidence, guess = scores.max(1)
    expected = 0.0
    for b in range(BINS):
        inside = (confidence >= b / BINS) & (confidence < (b + 1) / BINS)
        if inside.any():
            right = (guess == labels)[inside].float().mean()
            expected += float(inside.sum() / len(labels) * (right - confidence[inside].mean()).abs())
    found = classification(scores, labels, classes=7, count=20, seed=0)
    assert found.metrics["calibration error"].value == pytest.approx(expected, abs=1e-5)


def test_the_curves_go_through_scikit_learns_points() -> None:
    scores, labels = scored()
    curves = classification(scores, labels, classes=7, count=20, seed=0).curves
    assert curves["present"].tolist() == list(range(6))
    false_rate, true_rate, _ = sk.roc_curve(labels == 2, scores[:, 2], drop_intermediate=False)
    np.testing.assert_allclose(curves["roc"][2], np.interp(curves["grid"], false_rate, true_rate), atol=1e-5)
    precision, recall, _ = sk.precision_recall_curve(labels == 2, scores[:, 2])
    np.testing.assert_allclose(curves["pr"][2], np.interp(curves["grid"], recall[::-1], precision[::-1]), atol=1e-5)
    assert curves["bin_count"].sum() == 400


def test_metrics_of_weights_are_those_of_repeated_rows() -> None:
    scores, labels = scored(120)
    (weights,) = resamples(labels, count=3, seed=1)
    for name, values in weighted_metrics(scores, labels, weights).items():
        for w, value in zip(weights, values, strict=True):
            repeated = [x.repeat_interleave(w.long(), 0) for x in (scores, labels)]
            outcome = classification(*repeated, classes=7, count=20, seed=0)
            assert float(value) == pytest.approx(outcome.metrics[name].value, abs=1e-5), name


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    inside = 0
    for trial in range(60):
        scores, labels = scored(150, seed=trial)
        found = classification(scores, labels, classes=7, count=100, seed=trial).metrics["balanced accuracy"]
        inside += found.low <= TRUTH <= found.high  # type: ignore[operator]
    assert inside >= 48  # 80 %; 95 % of 60 is 57


TRUTH = float(
    sk.balanced_accuracy_score(scored(60_000, seed=999)[1].numpy(), scored(60_000, seed=999)[0].argmax(1).numpy())
)


def test_a_resample_has_the_size_of_each_class() -> None:
    labels = torch.tensor([0] * 30 + [1] * 5 + [2])
    weights = torch.cat(list(resamples(labels, count=50, seed=0)))
    for label, size in ((0, 30), (1, 5), (2, 1)):
        assert (weights[:, labels == label].sum(1) == size).all()
    assert (weights[0] != weights[1]).any()


def test_the_interval_of_a_mean_is_about_two_standard_errors() -> None:
    values = torch.randn(2000, generator=torch.Generator().manual_seed(0)).double() + 5
    found = mean_estimate(values / 10, count=1000, seed=0)
    error = float(values.std() / 10) / 2000**0.5
    assert found.value == pytest.approx(float(values.mean()) / 10)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.15)  # type: ignore[operator]


def test_a_bias_of_the_resamples_is_taken_out() -> None:
    found = with_interval(0.5, torch.linspace(0.6, 0.8, 101), 100)
    assert (found.low, found.high) == (pytest.approx(0.405), pytest.approx(0.595))
    assert with_interval(0.01, torch.linspace(0, 0.1, 11), 10).low == 0


def test_several_seeds_widen_the_interval_by_their_spread() -> None:
    runs = [Estimate(v, v - 0.03, v + 0.03, 100) for v in (0.5, 0.6, 0.7)]
    found = over_seeds(runs)
    between = 4.303 * 0.1 / 3**0.5
    assert found.value == pytest.approx(0.6)
    assert found.high == pytest.approx(0.6 + (0.03**2 + between**2) ** 0.5)
    assert over_seeds(runs[:1]) == runs[0]


def test_no_interval_leaves_what_the_metric_can_be() -> None:
    runs = [Estimate(v, v, 1.0, 100) for v in (0.1, 0.9)]
    assert over_seeds(runs).low < 0 < 1 < over_seeds(runs).high  # type: ignore[operator]
    assert over_seeds(runs, *bounds(SHARE))[1:3] == (0.0, 1.0)
    assert over_seeds(runs, *bounds(MetricStyle(least=-1.0)))[1:3] == (-1.0, 1.0)
    assert over_seeds(runs, *bounds(MetricStyle(2))) == over_seeds(runs)


def test_no_spread_is_no_interval() -> None:
    assert with_interval(0.5, torch.full((20,), 0.5), 13) == Estimate(0.5, None, None, 13)
    alike = [Estimate(0.5, None, None, 13)] * 2
    assert over_seeds(alike) == alike[0]
    assert lonely(torch.tensor([0, 0, 1, 1])) == []
    assert tells(lonely(torch.tensor([0, 0, 2]))[0], "one class")


def test_imbalance_is_said_and_balance_is_not() -> None:
    assert imbalance(torch.tensor([0] * 50 + [1] * 50)) == []
    (note,) = imbalance(torch.tensor([0] * 97 + [1] * 3))
    assert "3.0 %" in note and "AP" in note


def test_memory_is_linear_in_the_number_of_classes() -> None:
    """All pairs of 6,000 classes, resampled 200 times, would be 29 GB."""
    scores = torch.rand(40, 6000).softmax(1)
    outcome = classification(scores, torch.arange(40), classes=6000, count=200, seed=0)
    assert "confusion" not in outcome.curves and outcome.metrics["accuracy"].n == 40
