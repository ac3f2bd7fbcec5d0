"""The certificate passes what is right and catches what is not."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar import losses
from nearfar.distributed import check


def test_every_loss_is_certified() -> None:
    rows = list(check.certify())
    primitives = {name for name in losses.__all__ if name.startswith("similarity_")}
    others = {"estimate_log_normalizer", "tile_size", "top_k_similarity"}
    assert {row.loss for row in rows} == set(losses.__all__) - primitives - others
    assert all(row.passed for row in rows), [row for row in rows if not row.passed]


def forgot_temperature_on_the_positive(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    far = losses.similarity_logsumexp(z1, z2, scale=1 / t, query_ids=torch.arange(96), key_ids=torch.arange(96))
    return F.softplus(far - (z1 * z2).sum(1)).mean()


def detached_keys(z1: Tensor, z2: Tensor, t: Tensor) -> Tensor:
    return losses.info_nce(z1, z2.detach(), temperature=t)


@pytest.mark.parametrize("wrong", [forgot_temperature_on_the_positive, detached_keys])
def test_a_wrong_loss_or_gradient_is_caught(wrong: check.Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = check.PAIRS["info_nce"][1]
    monkeypatch.setattr(check, "PAIRS", {"wrong": (wrong, definition)})
    assert not any(row.passed for row in check.certify())
