"""The dense way is the definition, and a ring refuses what it cannot serve."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nearfar import losses
from nearfar.distributed.processes import check_ring
from nearfar.distributed.ring import RingBackend
from nearfar.losses.engine.backends import DenseBackend, use_backend
from nearfar.methods import METHODS
from nearfar.nn.shard import Shard
from tests.support.facts import facts

IDS = torch.tensor([0, 1, 0, 2])
Z = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "loss",
    [
        lambda a, b: losses.symmetric_info_nce(a, b, temperature=0.2, ids=IDS),
        lambda a, b: losses.nt_xent(a, b, temperature=0.2, ids=torch.zeros(4, dtype=torch.long)),  # no negatives
        lambda a, b: losses.info_nce(a, b, Z[2], temperature=0.2, ids=IDS, negative_ids=IDS),
        lambda a, b: losses.sigmoid_pairs(a, b, logit_scale=9.0, logit_bias=-2.0, ids=IDS),
    ],
)
def test_dense_and_tiles_agree(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    found = []
    for dense in (False, True):
        a, b = Z[0].clone().requires_grad_(), Z[1].clone().requires_grad_()
        if dense:
            with use_backend(DenseBackend()):
                value = loss(a, b)
        else:
            value = loss(a, b)
        found.append((value.detach(), *torch.autograd.grad(value, [a, b])))
    for x, y in zip(*found, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        lambda a, b: losses.info_nce(a, b, Z[2], temperature=0.2, ids=IDS, negative_ids=IDS.clone()),
        lambda a, b: losses.info_nce(a, b, temperature=0.2, ids=IDS, similarity="euclidean"),
        lambda a, b: losses.info_nce(a, b, temperature=0.2),
        lambda a, b: losses.nt_xent(a, b, temperature=0.2),
        lambda a, b: losses.sup_con(a, IDS, temperature=0.2),
        lambda a, b: losses.hard_negative(a, b, temperature=0.2, beta=0.5, positive_prior=0.1, ids=IDS),
        lambda a, b: losses.top_k_info_nce(a, b, temperature=0.2, k=2, ids=IDS),
    ],
    ids=["queue", "euclid", "no ids", "no ids of views", "classes", "counted", "hardest"],
)
def test_a_ring_refuses_what_needs_all_rows(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    with use_backend(RingBackend(Shard(0, (4, 4)))), pytest.raises(ValueError, match="ring") as refused:
        loss(Z[0], Z[1])
    assert "gather" in str(refused.value)


def test_methods_say_whether_keys_may_travel() -> None:
    check_ring(METHODS["siglip"].toy()[0])  # type: ignore[arg-type]
    for name, shown in (("moco", "MoCo"), ("byol", "BYOL")):
        with pytest.raises(ValueError, match=facts(f"gather 'ring' {shown} --gather")):
            check_ring(METHODS[name].toy()[0])  # type: ignore[arg-type]
