import math

import pytest
import torch

from nearfar.evaluation.metrics import accuracy, wilson
from tests.support.facts import facts


def test_accuracy_of_scores_and_of_classes() -> None:
    scores, labels = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]]), torch.tensor([1, 0, 1])
    assert accuracy(scores, labels) == accuracy(scores.argmax(1), labels)
    assert accuracy(scores, labels).value == pytest.approx(2 / 3)
    assert accuracy(scores, labels).n == 3


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (1, 5), (830, 1000), (1, 100_000)])
def test_wilson_solves_its_quadratic(right: int, n: int) -> None:
    low, high = wilson(right, n)
    share = right / n
    assert 0 <= low <= share <= high <= 1
    for bound in (low, high):
        if 0 < bound < 1:  # |share - bound| is 1.96 of the deviations that bound itself would have
            assert abs(share - bound) == pytest.approx(1.959964 * math.sqrt(bound * (1 - bound) / n), rel=1e-5)


def test_wilson_covers_as_often_as_it_says() -> None:
    draws = torch.distributions.Binomial(200, torch.tensor(0.9))
    torch.manual_seed(0)
    inside = [low <= 0.9 <= high for low, high in (wilson(int(x), 200) for x in draws.sample((2000,)))]
    assert 0.93 < sum(inside) / 2000 < 0.98


def test_errors_say_what_was_seen() -> None:
    with pytest.raises(ValueError, match=facts("7 5")):
        wilson(7, 5)
    with pytest.raises(ValueError, match=facts("predicted (3,) label (4,)")):
        accuracy(torch.zeros(3), torch.zeros(4))
