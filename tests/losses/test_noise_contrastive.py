import math

import pytest
import torch
from torch import Tensor

from nearfar.losses import estimate_log_normalizer, nce
from nearfar.losses.noise_contrastive import estimate_log_normalizer_reference, nce_reference
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows


def noise_of(kind: str, batch: int, count: int) -> Tensor:
    return rows(count, 3, seed=1) if kind == "shared" else rows(batch, count, 3, seed=1)


@pytest.mark.parametrize("proximal", [0.0, 3.0])
@pytest.mark.parametrize("held", [None, 5.0])
@pytest.mark.parametrize("kind", ["shared", "per query"])
@pytest.mark.parametrize(("batch", "count"), [(1, 1), (2, 5), (3, 4), (7, 2)])
def test_nce_equals_the_papers_posterior(
    batch: int, count: int, kind: str, held: float | None, proximal: float
) -> None:
    for temperature in (0.07, 1.0):

        def definition(q: Tensor, p: Tensor, n: Tensor, t: Tensor) -> Tensor:
            log_z = estimate_log_normalizer_reference(q, n, t, 100) if held is None else held
            return nce_reference(q, p, n, t, 100, log_z, proximal)

        assert_equals_reference(
            lambda q, p, n, t: nce(
                q, p, n, temperature=t, bank_size=100, log_normalizer=held, proximal=proximal, reduction="none"
            ),
            definition,
            *rows(2, batch, 3),
            noise_of(kind, batch, count),
            number(temperature),
        )


@pytest.mark.parametrize("kind", ["shared", "per query"])
def test_nce_passes_gradcheck_with_learned_temperature_and_normalizer(kind: str) -> None:
    q, p = rows(2, 3, 3)
    assert_gradcheck(
        lambda q, p, n, t, z: nce(
            q, p, n, temperature=t, bank_size=50, log_normalizer=z, proximal=0.7, reduction="none"
        ),
        q,
        p,
        noise_of(kind, 3, 4),
        number(0.4),
        number(3.0),
    )


@pytest.mark.parametrize("kind", ["shared", "per query"])
def test_normalizer_is_the_monte_carlo_estimate_and_carries_no_gradient(kind: str) -> None:
    query, noise = rows(3, 3).requires_grad_(), noise_of(kind, 3, 4)
    estimate = estimate_log_normalizer(query, noise, temperature=0.2, bank_size=70)
    assert not estimate.requires_grad
    assert_near(estimate, estimate_log_normalizer_reference(query, noise, 0.2, 70), 1e-10)


def test_estimate_given_back_as_the_held_normalizer_changes_nothing() -> None:
    q, p = rows(2, 4, 3)
    noise = rows(6, 3, seed=1)
    held = estimate_log_normalizer(q, noise, temperature=0.2, bank_size=70)
    assert_near(
        nce(q, p, noise, temperature=0.2, bank_size=70, log_normalizer=held),
        nce(q, p, noise, temperature=0.2, bank_size=70),
        1e-12,
    )


def test_collapsed_features_leave_only_the_odds_of_data_and_noise() -> None:
    """P = 1/n for all, so h = 1 / (1 + m): the loss is log(1 + m) + m log((1 + m) / m)."""
    same, noise = torch.ones(3, 2, dtype=torch.float64), torch.ones(5, 2, dtype=torch.float64)
    expected = math.log(6) + 5 * math.log(6 / 5)
    assert_near(nce(same, same, noise, temperature=0.1, bank_size=40), number(expected), 1e-10)


def test_proximal_term_is_the_squared_way_from_the_memory() -> None:
    q, p = torch.eye(2, dtype=torch.float64)
    q, p, noise = q[None], p[None], rows(3, 2)
    plain = nce(q, p, noise, temperature=1.0, bank_size=10)
    assert_near(nce(q, p, noise, temperature=1.0, bank_size=10, proximal=0.5), plain + 0.5 * 2, 1e-12)
