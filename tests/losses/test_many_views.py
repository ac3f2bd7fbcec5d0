"""NT-Xent and VICReg of any number of views, with local ones."""

import math

import pytest
import torch
from torch import Tensor

from nearfar import losses
from nearfar.distributed.ring import RingBackend
from nearfar.losses import decoupled, nt_xent, nt_xent_views, vicreg, vicreg_views
from nearfar.losses.engine.backends import use_backend
from nearfar.losses.info_nce import nt_xent_views_reference
from nearfar.losses.redundancy import vicreg_views_reference
from nearfar.nn.shard import Shard
from tests.losses.agreement import assert_equals_reference, assert_gradcheck, assert_near, number, rows, tiles_of
from tests.support.facts import facts

NUMBERS = [(2, 0), (3, 0), (2, 1), (3, 2), (4, 6)]  # of views and of local ones
IDS = torch.tensor([0, 1, 2, 1, 3])


def split(z: Tensor, full: int) -> tuple[list[Tensor], list[Tensor]]:
    return list(z[:full]), list(z[full:])


@pytest.mark.parametrize("ids", [None, IDS, torch.zeros(5, dtype=torch.long)])
@pytest.mark.parametrize("temperature", [0.07, 0.5, 10.0])
@pytest.mark.parametrize(("full", "local"), NUMBERS)
@pytest.mark.parametrize("bare", [False, True], ids=["", "without positive"])
def test_nt_xent_equals_loops_over_views_and_samples(
    bare: bool, full: int, local: int, temperature: float, ids: Tensor | None
) -> None:
    assert_equals_reference(
        lambda z, t: nt_xent_views(*split(z, full), temperature=t, without_positive=bare, ids=ids, reduction="none"),
        lambda z, t: nt_xent_views_reference(*split(z, full), t, ids, bare),
        rows(full + local, 5, 3),
        number(temperature),
    )


@pytest.mark.parametrize(("full", "local"), NUMBERS)
def test_vicreg_equals_loops_over_pairs_and_views(full: int, local: int) -> None:
    assert_equals_reference(
        lambda z: vicreg_views(*split(z, full), variance_weight=3.0, covariance_weight=2.0),
        lambda z: vicreg_views_reference(*split(z, full), variance_weight=3.0, covariance_weight=2.0),
        rows(full + local, 5, 3),
        sides=[None],
    )


@pytest.mark.parametrize(("full", "local"), NUMBERS)
def test_gradients_are_finite_differences(full: int, local: int) -> None:
    z = rows(full + local, 4, 3)
    ids = torch.tensor([0, 1, 2, 1])
    assert_gradcheck(
        lambda z, t: nt_xent_views(*split(z, full), temperature=t, ids=ids, reduction="none"), z, number(0.3)
    )
    assert_gradcheck(lambda z: vicreg_views(*split(z, full)), z)


@pytest.mark.parametrize("temperature", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_views_are_the_losses_of_two_views_bit_for_bit(dtype: torch.dtype, temperature: float) -> None:
    z1, z2 = (x.requires_grad_() for x in rows(2, 37, 19, dtype=dtype))
    ids = torch.arange(37) % 30
    for many, two in (
        (
            nt_xent_views([z1, z2], temperature=temperature, ids=ids),
            nt_xent(z1, z2, temperature=temperature, ids=ids),
        ),
        (nt_xent_views([z1, z2], temperature=temperature), nt_xent(z1, z2, temperature=temperature)),
        (
            nt_xent_views([z1, z2], temperature=temperature, without_positive=True, ids=ids),
            decoupled(z1, z2, temperature=temperature, ids=ids),
        ),
        (vicreg_views([z1, z2]), vicreg(z1, z2)),
    ):
        assert torch.equal(many, two)
        for a, b in zip(torch.autograd.grad(many, [z1, z2]), torch.autograd.grad(two, [z1, z2]), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("temperature", [0.005, 0.1, 100.0])
@pytest.mark.parametrize(("full", "local"), NUMBERS)
def test_collapsed_embeddings_cost_the_logarithm_of_the_choices(full: int, local: int, temperature: float) -> None:
    same = torch.ones(6, 4, dtype=torch.float64)
    loss = nt_xent_views([same] * full, [same] * local, temperature=temperature)
    assert_near(loss, number(math.log(full * 5 + 1)), 1e-10)


@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_orthogonal_samples_cost_what_their_exponentials_say(temperature: float) -> None:
    z = torch.eye(4, dtype=torch.float64)
    loss = nt_xent_views([z] * 3, [z] * 2, temperature=temperature)
    assert_near(loss, number(math.log1p(9 * math.exp(-1 / temperature))), 1e-12)


@pytest.mark.parametrize("temperature", [0.002, 0.005, 1000.0])
def test_extreme_temperatures(temperature: float) -> None:
    z = rows(5, 6, 4)
    expected = nt_xent_views_reference(*split(z, 3), number(temperature)).mean()
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        x = z.to(dtype).requires_grad_()
        loss = nt_xent_views(*split(x, 3), temperature=temperature)
        assert_near(loss.detach(), expected, tolerance)
        assert torch.autograd.grad(loss, x)[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    z = rows(5, 6, 4).to(dtype)
    loss = nt_xent_views(*split(z, 3), temperature=0.1)
    assert loss.dtype == torch.float32
    assert_near(loss, nt_xent_views_reference(*split(z.double(), 3), 0.1).mean(), 1e-5)
    assert vicreg_views(*split(z, 3)).dtype == torch.float32


def test_a_local_view_is_no_key() -> None:
    """It changes the loss of no other row."""
    z = rows(5, 6, 4)
    without = nt_xent_views(*split(z[:3], 3), temperature=0.2, reduction="none")
    with tiles_of(2):
        whole = nt_xent_views(*split(z, 3), temperature=0.2, reduction="none")
    assert whole.shape == (30,) and torch.allclose(whole[:18], without, rtol=1e-12)
    one = nt_xent_views(list(z[:3]), [z[4]], temperature=0.2, reduction="none")
    assert_near(one[18:], whole[24:], 1e-12)


def test_a_ring_needs_ids_and_rows_of_the_batch() -> None:
    z = rows(5, 4, 3)
    with use_backend(RingBackend(Shard(0, (4, 4)))), pytest.raises(ValueError, match="ring"):
        nt_xent_views(*split(z, 3), temperature=0.2)


@pytest.mark.parametrize("loss", [nt_xent_views, vicreg_views])
def test_what_is_wrong_is_named(loss: object) -> None:
    options = {"temperature": 0.1} if loss is nt_xent_views else {}
    z = torch.ones(3, 2)
    with pytest.raises(ValueError, match=facts("views 1 at least 2")):
        loss([z], **options)  # type: ignore[operator]
    with pytest.raises(ValueError, match=facts("(3, 2) (4, 2)")):
        loss([z, torch.ones(4, 2)], **options)  # type: ignore[operator]
    with pytest.raises(ValueError, match=facts("(3, 2) (3, 5)")):
        loss([z, z], [torch.ones(3, 5)], **options)  # type: ignore[operator]
    with pytest.raises(TypeError):
        loss([z, z.long()], **options)  # type: ignore[operator]


def test_the_losses_are_exported() -> None:
    assert {"nt_xent_views", "vicreg_views"} <= set(losses.__all__)
