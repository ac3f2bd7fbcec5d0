"""Information of tables: worked values, identities, and scipy and scikit-learn beside them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import log_loss

from nearfar import lab
from tests.support.facts import tells

WEATHER = [[0.2, 0.5], [0.3, 0.0]]
FORMS = ("conditional", "joint", "divergence")


def tables(rows: int = 3, columns: int = 4) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    cells = st.lists(st.sampled_from([0.0, 0.0, 1e-9, 0.1, 1.0, 7.0]), min_size=rows * columns, max_size=rows * columns)
    return cells.filter(any).map(lambda c: np.array(c).reshape(rows, columns) / sum(c))


def test_the_weather_tells_of_the_umbrella() -> None:
    assert lab.entropy([0.7, 0.3], unit="bits") == pytest.approx(0.881, abs=5e-4)
    assert lab.conditional_entropy(WEATHER, unit="bits") == pytest.approx(0.485, abs=5e-4)
    for form in FORMS:
        assert lab.mutual_information(WEATHER, form=form, unit="bits") == pytest.approx(0.396, abs=5e-4)


def test_a_copy_tells_all_and_independence_nothing() -> None:
    for form in FORMS:
        assert lab.mutual_information(np.eye(2) / 2, form=form, unit="bits") == pytest.approx(1, abs=1e-14)
        assert lab.mutual_information(np.outer([0.2, 0.8], [0.5, 0.3, 0.2]), form=form) == pytest.approx(0, abs=1e-14)


@settings(max_examples=50, deadline=None)
@given(tables())
def test_three_forms_of_mutual_information_agree(joint: np.ndarray[Any, Any]) -> None:
    first, *others = (lab.mutual_information(joint, form=form) for form in FORMS)
    assert others == pytest.approx([first] * 2, abs=1e-12)
    assert -1e-12 <= first <= math.log(3) + 1e-12
    swapped = lab.conditional_entropy(joint, given="x")
    assert lab.entropy(joint.sum(0)) - swapped == pytest.approx(first, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(tables(1, 6), tables(1, 6))
def test_cross_entropy_is_entropy_and_divergence(p: np.ndarray[Any, Any], q: np.ndarray[Any, Any]) -> None:
    divergence = lab.kl_divergence(p, q)
    assert divergence == pytest.approx(max(0.0, stats.entropy(p.ravel(), q.ravel())), abs=1e-12)
    assert lab.cross_entropy(p, q) == pytest.approx(lab.entropy(p) + divergence, abs=1e-12)
    assert lab.entropy(p, unit="bits") == pytest.approx(stats.entropy(p.ravel(), base=2), abs=1e-12)


def test_impossible_events_cost_infinitely_much() -> None:
    assert lab.kl_divergence([0.5, 0.5], [1.0, 0.0]) == math.inf == lab.cross_entropy([0.5, 0.5], [1.0, 0.0])
    assert lab.kl_divergence([1.0, 0.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert lab.perplexity([0.5, 0.0]) == math.inf


@pytest.mark.parametrize("kind", [torch.tensor, np.array, list])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_arrays_and_lists_are_tables(kind: Any, dtype: torch.dtype) -> None:
    table = torch.tensor(WEATHER).to(dtype) if kind is torch.tensor else kind(WEATHER)
    assert lab.mutual_information(table) == pytest.approx(lab.mutual_information(WEATHER), abs=1e-7)


def test_perplexity_and_binary_cross_entropy() -> None:
    assert lab.perplexity([0.5, 0.125]) == pytest.approx(4)
    assert lab.perplexity([1.0, 1.0]) == 1
    happened, p = [1, 0, 1, 1], [0.9, 0.2, 0.6, 0.5]
    assert lab.binary_cross_entropy(happened, p) == pytest.approx(log_loss(happened, p), abs=1e-12)
    assert lab.binary_cross_entropy([1, 0], [1.0, 0.0]) == 0


def test_bayes_and_total_probability() -> None:
    posterior, seen = lab.bayes([0.7, 0.3], [2 / 7, 1.0])  # an umbrella is seen
    assert seen == pytest.approx(0.5)
    torch.testing.assert_close(posterior, lab.conditional(WEATHER)[:, 0])
    assert lab.marginal(WEATHER, "y").tolist() == pytest.approx([0.5, 0.5])
    assert lab.conditional([[0.5, 0.0], [0.5, 0.0]])[:, 1].tolist() == [0, 0]  # never occurs


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: lab.entropy([0.5, 0.6]), "p 1.1 1"),
        (lambda: lab.entropy([1.5, -0.5]), "p -0.5"),
        (lambda: lab.entropy([math.nan, 1.0]), "p holds NaN"),
        (lambda: lab.entropy([]), "p (0,)"),
        (lambda: lab.entropy(["a"]), "p is"),
        (lambda: lab.entropy([1.0], unit="hartleys"), "unit 'hartleys'"),
        (lambda: lab.mutual_information([0.5, 0.5]), "joint (2,)"),
        (lambda: lab.mutual_information([[1.0]], form="other"), "form 'other'"),
        (lambda: lab.conditional_entropy(WEATHER, given="z"), "'z'"),
        (lambda: lab.kl_divergence([1.0], [0.5, 0.5]), "p (1,) q (2,)"),
        (lambda: lab.perplexity([1.5]), "likelihood empty [0, 1]"),
        (lambda: lab.bayes([0.5, 0.5], [0.0, 0.0]), "likelihood 0"),
        (lambda: lab.bayes([0.5, 0.5], [2.0, 0.0]), "likelihood"),
        (lambda: lab.binary_cross_entropy([1], [0.5, 0.5]), "happened (1,) p (2,)"),
        (lambda: lab.contrastive_task(WEATHER, 40), "n 40"),
        (lambda: lab.contrastive_task(WEATHER, 2.5), "n 2.5"),
        (lambda: lab.contrastive_task(WEATHER, 0), "n 0 1"),
        (lambda: lab.perplexity("half"), "likelihood 'half'"),
        (lambda: lab.perplexity(None), "likelihood 'None'"),
        (lambda: lab.perplexity([math.nan]), "likelihood holds NaN"),
        (lambda: lab.binary_cross_entropy(["yes"], [0.5]), "happened ['yes']"),
        (lambda: lab.binary_cross_entropy([1], None), "p 'None'"),
        (lambda: lab.bayes([0.5, 0.5], ["a", "b"]), "table"),
        (lambda: lab.bayes([0.5, 0.5], None), "likelihood 'None'"),
    ],
)
def test_what_is_no_table_is_refused_in_a_line(call: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        call()
    assert tells(str(error.value), said) and "\n" not in str(error.value)
