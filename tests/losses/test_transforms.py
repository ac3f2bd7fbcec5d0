"""torch.func and checkpointing: what each transform of a loss gives is what plain autograd gives."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

from tests.losses.agreement import assert_near, rows
from tests.losses.catalogue import TWO_VIEW_LOSSES


def loss_of(name: str) -> tuple[Callable[..., Tensor], Tensor, Tensor, Tensor]:
    """A loss of its first view, that view, a direction, and the gradient."""
    case = TWO_VIEW_LOSSES[name]
    samples = max(4, case.fewest)
    z1, z2, along = rows(3, samples, 3).unbind()

    def loss(z: Tensor, temperature: float | Tensor = 0.5) -> Tensor:
        return case.loss(z, z2, temperature=temperature)

    leaf = z1.clone().requires_grad_()
    return loss, z1, along, torch.autograd.grad(loss(leaf), leaf)[0]


@pytest.mark.parametrize("name", TWO_VIEW_LOSSES)
def test_transforms_give_the_gradient(name: str) -> None:
    loss, z, along, gradient = loss_of(name)
    assert_near(grad(loss)(z), gradient, 1e-12)
    assert_near(jacrev(loss)(z), gradient, 1e-12)
    assert_near(jacfwd(loss)(z), gradient, 1e-12)
    assert_near(jvp(loss, (z,), (along,))[1], (gradient * along).sum(), 1e-12)
    temperature = torch.tensor(0.5, dtype=z.dtype)
    assert_near(grad(loss, argnums=(0, 1))(z, temperature)[0], gradient, 1e-12)
    leaf = z.clone().requires_grad_()
    value = checkpoint(loss, leaf, use_reentrant=False)
    assert_near(torch.autograd.grad(value, leaf)[0], gradient, 1e-12)


@pytest.mark.parametrize("name", TWO_VIEW_LOSSES)
def test_a_batch_of_batches_is_each_in_turn(name: str) -> None:
    loss, z, along, gradient = loss_of(name)
    both = torch.stack([z, along])
    assert_near(vmap(loss)(both), torch.stack([loss(z), loss(along)]), 1e-12)
    assert_near(vmap(grad(loss))(both)[0], gradient, 1e-12)


@pytest.mark.parametrize("name", TWO_VIEW_LOSSES)
def test_hessians_agree_forward_over_reverse_and_reverse_over_reverse(name: str) -> None:
    loss, z, _, _ = loss_of(name)
    expected = torch.autograd.functional.hessian(loss, z)
    for found in (hessian(loss)(z), jacrev(jacrev(loss))(z), jacrev(jacfwd(loss))(z)):
        assert_near(found, expected, 1e-10)


def test_ids_may_be_batched_too() -> None:
    case = TWO_VIEW_LOSSES["nt_xent"]
    z1, z2 = rows(2, 2, 4, 3).unbind()
    ids = torch.tensor([[0, 1, 2, 3], [0, 1, 1, 2]])
    found = vmap(lambda a, b, i: case.loss(a, b, temperature=0.5, ids=i))(z1, z2, ids)
    each = [case.loss(a, b, temperature=0.5, ids=i) for a, b, i in zip(z1, z2, ids, strict=True)]
    assert_near(found, torch.stack(each), 1e-12)
