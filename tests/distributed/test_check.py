"""`compare_losses` passes correct losses and catches wrong ones."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar import losses
from nearfar.distributed import check
from nearfar.losses import info_nce, reference
from nearfar.losses.reference import DEFINITIONS


def test_every_loss_is_compared() -> None:
    rows = list(check.compare_losses())
    primitives = {name for name in losses.__all__ if name.startswith("similarity_")}
    others = {"estimate_log_normalizer", "tile_size", "top_k_similarity", "use_engine"}
    assert {row.loss for row in rows} == set(losses.__all__) - primitives - others
    assert all(row.passed for row in rows), [row for row in rows if not row.passed]


def forgot_temperature_on_the_positive(z1: Tensor, z2: Tensor, *, temperature: Tensor) -> Tensor:
    z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    far = losses.similarity_logsumexp(
        z1, z2, scale=1 / temperature, query_ids=torch.arange(96), key_ids=torch.arange(96)
    )
    return F.softplus(far - (z1 * z2).sum(1)).mean()


def detached_keys(z1: Tensor, z2: Tensor, *, temperature: Tensor) -> Tensor:
    return info_nce(z1, z2.detach(), temperature=temperature)


@pytest.mark.parametrize("wrong", [forgot_temperature_on_the_positive, detached_keys])
def test_a_wrong_loss_or_gradient_is_caught(wrong: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "DEFINITIONS", {"info_nce": DEFINITIONS["info_nce"]._replace(loss=wrong)})
    assert not any(row.passed for row in check.compare_losses())


def test_a_loss_is_compared_once_its_definition_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: dict[str, reference.Definition] = {}
    for module in (reference, check):
        monkeypatch.setattr(module, "DEFINITIONS", declared)

    def mean_product(z1: Tensor, z2: Tensor, *, temperature: Tensor) -> Tensor:
        return (z1 * z2).sum(1).mean() / temperature

    @reference.definition_of(mean_product)
    def mean_product_reference(z1: Tensor, z2: Tensor, temperature: Tensor) -> Tensor:
        return torch.stack([reference.dot(a, b) / temperature for a, b in zip(z1, z2, strict=True)])

    rows = list(check.compare_losses(tiles=(None,)))
    assert [row.loss for row in rows] == ["mean_product"] and rows[0].passed


def test_what_rounded_products_cost_is_measured() -> None:
    rows = list(check.compare_losses(tiles=(None,), precisions=("exact", "tf32", "bf16")))
    worst = {row.precision: row for row in check.worst_by_precision(rows)}
    assert all(row.passed for row in rows)
    errors = [worst[p].value_error for p in ("exact", "tf32", "bf16")]  # type: ignore[index]
    assert 0 < 10 * errors[0] < errors[1] < errors[2] < 0.1
