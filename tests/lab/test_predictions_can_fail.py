"""What theory says in the lab can fail: with a formula, a critic, data or an encoder that is wrong, it does."""

import importlib
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from nearfar.lab import estimators, sphere
from nearfar.lab.findings import Claim, no_progress
from nearfar.losses import debiased


def module(name: str) -> ModuleType:
    return importlib.import_module(f"nearfar.lab.experiments.{name}")


def claims(name: str, part: str, *more: Any) -> list[Claim]:
    """Those of one part of an experiment, in its quick form."""
    found: list[Claim]
    found, *_ = getattr(module(name), part)(torch.Generator().manual_seed(0), *more, True, no_progress)
    return found


def missed(found: list[Claim], word: str) -> list[bool]:
    """Of the predictions that have the word in them, and are no identities."""
    return [not claim.agrees for claim in found if word in claim.what and claim.kind != "identity"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda i, n: math.exp(2 * i) / (2 * n),
        lambda i, n: 1.3 * estimators.expected_gap(i, n),
        lambda i, n: 0.75 * estimators.expected_gap(i, n),
    ],
    ids=["without -1", "times 1.3", "times 0.75"],
)
def test_how_tight_the_bound_is(wrong: Callable[[float, int], float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module("bound"), "expected_gap", wrong)
    assert all(missed(claims("bound", "_tightness"), "minus bound"))


def test_what_the_best_critic_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    right = estimators.optimal_critic
    with monkeypatch.context() as patch:
        patch.setattr(estimators, "optimal_critic", lambda x, y, rho: right(x, y, 0.7 * rho))
        assert all(missed(claims("bound", "_best"), "bound, I ="))
    draw = estimators.correlated_gaussians

    def less(n: int, d: int, rho: float, *more: Any) -> Any:
        return draw(
            n, d, estimators.correlation_from_information(estimators.gaussian_information(rho, d) / 1.25, d), *more
        )

    monkeypatch.setattr(estimators, "correlated_gaussians", less)
    assert all(missed(claims("bound", "_best"), "bound, I ="))


@pytest.mark.parametrize("wrong", [lambda i: i + 10, lambda i: 1.25 * i, lambda i: 0.8 * i])
def test_what_views_with_noise_share(wrong: Callable[[float], float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module("views"), "gaussian_information", lambda rho, d: wrong(estimators.gaussian_information(rho, d))
    )
    assert any(missed(claims("views", "_noise"), "bound"))


def test_an_encoder_that_learns_nothing_keeps_what_views_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module("views"), "minimize", lambda *_, **__: None)
    found = claims("views", "_factors")
    assert all(missed(found, "read out")) and all(missed(found, "has learned"))


def test_what_chance_takes_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sphere, "relative_variance", lambda kappa, d: 0.0)
    assert any(missed(claims("negatives", "_number", 2), "loss"))


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_the_chance_in_the_gradient(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    right = sphere.gradient_noise
    monkeypatch.setattr(sphere, "gradient_noise", lambda *given: factor * right(*given))
    assert any(missed(claims("negatives", "_number", 16), "gradient"))


def test_a_debiased_loss_that_takes_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*z: torch.Tensor, positive_prior: float, **more: Any) -> torch.Tensor:
        return debiased(*z, positive_prior=0, **more)

    monkeypatch.setattr(module("negatives"), "debiased", none)
    assert all(missed(claims("negatives", "_false"), "debiased"))
    assert all(missed(claims("negatives", "_floor"), "below"))
