"""Second derivatives: those of the reference, in linear memory; a third is refused."""

import pytest
import torch
from torch import Tensor

from nearfar.losses import batch_triplet, nt_xent, similarity_logsumexp_two_way, similarity_softplus_sum, tile_size
from nearfar.losses.margin import batch_triplet_reference
from nearfar.losses.reference import DEFINITIONS, labeled
from tests.losses.agreement import Function, assert_near, number, rows, tiles_of
from tests.losses.catalogue import ROW_LOSSES, TWO_VIEW_LOSSES, WHOLE_LOSSES
from tests.losses.watch import Watch
from tests.support.facts import facts


def hessian_products(loss: Function, *inputs: Tensor) -> list[Tensor]:
    """The Hessian times a fixed direction, in each input."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    value = loss(*leaves)
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype).view_as(value)
    first = torch.autograd.grad(value, leaves, weights, create_graph=True, materialize_grads=True)
    along = sum((g * torch.linspace(-1, 1, g.numel(), dtype=g.dtype).view_as(g)).sum() for g in first)
    assert isinstance(along, Tensor)
    return list(torch.autograd.grad(along, leaves, materialize_grads=True))


@pytest.mark.parametrize("side", [None, 3])
@pytest.mark.parametrize("name", TWO_VIEW_LOSSES)
def test_second_derivatives_equal_those_of_the_reference(name: str, side: int | None) -> None:
    case = TWO_VIEW_LOSSES[name]
    samples = max(5, case.fewest)
    ids = torch.arange(samples) % (samples - 1)
    inputs = rows(samples, 3), rows(samples, 3, seed=1), number(0.4)

    def plain(a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return case.reference(a, b, t, ids)

    def ours(a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return case.loss(a, b, temperature=t, ids=ids, reduction="none")

    with tiles_of(side):
        found = hessian_products(ours, *inputs)
    for a, b in zip(found, hessian_products(plain, *inputs), strict=True):
        assert_near(a, b, 1e-9)


@pytest.mark.parametrize("side", [None, 4])
@pytest.mark.parametrize("name", sorted({*DEFINITIONS} - {*TWO_VIEW_LOSSES, "batch_triplet"}))
def test_those_of_the_other_losses_too(name: str, side: int | None) -> None:
    loss, reference, call = DEFINITIONS[name]
    inputs = rows(6, 4), rows(6, 4, seed=1), number(0.4)
    with tiles_of(side):
        found = hessian_products(lambda *args: call(loss, *args), *inputs)
    for a, b in zip(found, hessian_products(lambda *args: call(reference, *args).mean(), *inputs), strict=True):
        assert_near(a, b, 1e-9)


@pytest.mark.parametrize("mining", ["hard", "semi-hard", "all"])
def test_batch_triplet_has_those_of_cosine_distances_alone(mining: str) -> None:
    z, labels = labeled(rows(6, 4), rows(6, 4, seed=1))
    options = {"margin": 0.5, "mining": mining}
    found = hessian_products(lambda x: batch_triplet(x, labels, distance="cosine", **options), z)
    expected = hessian_products(lambda x: batch_triplet_reference(x, labels, distance="cosine", **options), z)
    assert_near(found[0], expected[0], 1e-9)
    with pytest.raises(RuntimeError, match=facts("derivative")):
        hessian_products(lambda x: batch_triplet(x, labels, **options), z)


SMOOTH = [name for name in (*ROW_LOSSES, *WHOLE_LOSSES) if not (name.endswith("euclidean") or name.startswith("nce"))]


@pytest.mark.parametrize("name", SMOOTH)
def test_losses_without_tiles_pass_gradgradcheck(name: str) -> None:
    loss = {**ROW_LOSSES, **WHOLE_LOSSES}[name]
    z1, z2 = rows(4, 3).requires_grad_(), rows(4, 3, seed=1).requires_grad_(name != "cosine_regression")
    assert torch.autograd.gradgradcheck(loss, (z1, z2))


@pytest.mark.parametrize("scale", [1.0, 500.0])
@pytest.mark.parametrize("with_ids", [False, True])
def test_the_primitives_pass_gradgradcheck(scale: float, with_ids: bool) -> None:
    ids = (torch.tensor([0, 1, 2, 1]), torch.tensor([0, 1, 1])) if with_ids else (None, None)
    query, keys = rows(4, 2).requires_grad_(), rows(3, 2, seed=1).requires_grad_()
    factor, bias = number(scale / 500).requires_grad_(), number(0.5).requires_grad_()

    def two_way(q: Tensor, k: Tensor, s: Tensor) -> Tensor:
        return torch.cat(similarity_logsumexp_two_way(q, k, scale=500 * s, query_ids=ids[0], key_ids=ids[1]))

    def sigmoid(q: Tensor, k: Tensor, s: Tensor, b: Tensor) -> Tensor:
        return similarity_softplus_sum(q, k, scale=s, bias=b, query_ids=ids[0], key_ids=ids[1])

    with tile_size(2):
        assert torch.autograd.gradgradcheck(two_way, (query / 9, keys / 9, factor))
        assert torch.autograd.gradgradcheck(sigmoid, (query, keys, factor, bias))


def test_of_many_rows_no_tensor_is_as_large_as_the_matrix() -> None:
    views = [x.float() for x in rows(2, 80, 4)]
    with tile_size(20), Watch() as watch:
        hessian_products(lambda a, b: nt_xent(a, b, temperature=0.5), *views)
    assert watch.largest < 160 * 160 / 8


def test_a_third_derivative_is_refused() -> None:
    z1, z2 = (x.requires_grad_() for x in rows(2, 3, 2))
    with tile_size(2):
        (first,) = torch.autograd.grad(nt_xent(z1, z2, temperature=0.5), z1, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), z1, create_graph=True)
    with pytest.raises(RuntimeError, match=facts("differentiated three")):
        second.sum().backward()
