"""The errors that circulate in tutorials, each shown beside what the package does instead.

Those that concern a momentum encoder, a queue or an average of weights are tested with the methods that have them.
"""

import inspect
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar import losses
from nearfar.losses import info_nce, nt_xent, similarity_logsumexp_two_way, tile_size, top_k_info_nce
from nearfar.losses.info_nce import nt_xent_reference
from nearfar.losses.negatives import hard_negative_reference, top_k_info_nce_reference
from nearfar.nn.temperature import LogitScale, LogTemperature
from tests.losses.agreement import Function, assert_near, rows
from tests.losses.catalogue import TWO_VIEW_LOSSES
from tests.losses.watch import watched
from tests.support.facts import facts


def dense_nt_xent(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    """As tutorials write it, with the whole matrix."""
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    logits = (z @ z.T / temperature).masked_fill(torch.eye(len(z), dtype=torch.bool), -torch.inf)
    return F.cross_entropy(logits, torch.arange(len(z)).roll(len(z1)))


# 1. The positive logit taken before dividing by the temperature.


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_positive_and_negatives_are_divided_by_the_same_temperature(temperature: float) -> None:
    z1, z2 = rows(2, 4, 3)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    similarity = z @ z.T
    near = similarity.diagonal(4).repeat(2)
    total = (similarity / temperature).fill_diagonal_(-torch.inf).logsumexp(1)
    right, wrong = (total - near / temperature).mean(), (total - near).mean()
    assert_near(nt_xent(z1, z2, temperature=temperature), right, 1e-10)
    assert abs(wrong - right) > 0.01


def test_gradient_pulls_the_positive_as_hard_as_it_pushes_the_negatives() -> None:
    """The logits' gradients sum to zero, which they do not if the positive alone escapes the temperature."""
    for temperature in (0.1, 2.0):
        query = torch.eye(1, 3, dtype=torch.float64)
        positive, queue = rows(1, 3).requires_grad_(), rows(5, 3, seed=1).requires_grad_()
        info_nce(query, positive, queue, temperature=temperature, similarity="dot").backward()
        assert abs(positive.grad[:, 0].sum() + queue.grad[:, 0].sum()) < 1e-12
        assert positive.grad[0, 0].abs() > 1e-3


# 2. Two halves fed to a loss that expects interleaved pairs.


@pytest.mark.parametrize("name", TWO_VIEW_LOSSES)
def test_row_i_of_one_view_belongs_to_row_i_of_the_other(name: str) -> None:
    """Distinct samples seen twice cost little, and any other pairing costs more."""
    z = torch.eye(6, dtype=torch.float64)
    loss = partial(TWO_VIEW_LOSSES[name].loss, temperature=0.1)
    paired, mispaired = loss(z, z), loss(z, z.roll(1, 0))
    as_if_interleaved = loss(torch.cat([z, z])[0::2], torch.cat([z, z])[1::2])
    assert mispaired > paired + 5
    assert as_if_interleaved > paired + 1


# 5. A temperature as a raw parameter.


@pytest.mark.parametrize("kind", [LogTemperature, LogitScale])
@pytest.mark.parametrize("direction", [-1.0, 1.0])
def test_temperature_stays_positive_and_bounded_through_wild_steps_and_comes_back(
    kind: type[LogTemperature] | type[LogitScale], direction: float
) -> None:
    learned, raw = kind(0.5), nn.Parameter(torch.tensor(0.5))
    optimizer = torch.optim.Adam([*learned.parameters(), raw], lr=3.0)
    reached_raw = []

    def push(towards: float) -> float:
        optimizer.zero_grad()
        (towards * (learned() + raw)).backward()
        optimizer.step()
        reached_raw.append(raw.item())
        return learned().item()

    reached = [push(direction) for _ in range(30)]
    bound = learned.low if direction > 0 else learned.high
    assert reached[-1] == pytest.approx(bound, rel=1e-5)
    reached += [push(-direction) for _ in range(60)]
    other = learned.high if direction > 0 else learned.low
    assert reached[-1] == pytest.approx(other, rel=1e-5)
    assert all(learned.low * (1 - 1e-5) <= value <= learned.high * (1 + 1e-5) for value in reached)
    assert min(reached_raw) < 0  # where the plain parameter went


def test_loss_refuses_a_temperature_that_a_raw_parameter_let_slip() -> None:
    raw = nn.Parameter(torch.tensor(0.01))
    with torch.no_grad():
        raw -= 0.02
    with pytest.raises(ValueError, match=facts("temperature -0.01")):
        nt_xent(rows(2, 3), rows(2, 3), temperature=raw)


# 6. log(exp(x) / sum(exp(x))), and masks of -9e15.


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_temperature_in_low_precision_does_not_overflow(dtype: torch.dtype) -> None:
    z1, z2 = rows(2, 5, 3, dtype=dtype)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    exponentials = (z @ z.T / 0.005).exp()
    assert not (exponentials.diagonal(5) / exponentials.sum(1)[:5]).log().isfinite().all()
    for name, case in TWO_VIEW_LOSSES.items():
        a, b = z1.clone().requires_grad_(), z2.clone().requires_grad_()
        loss = case.loss(a, b, temperature=0.005)
        loss.backward()
        assert loss.isfinite(), name
        assert a.grad.isfinite().all() and b.grad.isfinite().all(), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_row_with_everything_masked_is_no_nan(dtype: torch.dtype) -> None:
    assert torch.full((1, 2), -9e15).half().softmax(1).isnan().all()
    z1, z2 = rows(2, 2, 3, dtype=dtype)
    for name, case in TWO_VIEW_LOSSES.items():
        if case.fewest > 1:
            continue
        for temperature in (0.005, 0.5):
            a, b = z1.clone().requires_grad_(), z2.clone().requires_grad_()
            loss = case.loss(a, b, temperature=temperature, ids=torch.tensor([7, 7]), reduction="none")
            loss.sum().backward()
            assert loss.isfinite().all(), name
            assert a.grad.isfinite().all() and b.grad.isfinite().all(), name


# 7. Python loops over pairs.


@pytest.mark.parametrize("name", TWO_VIEW_LOSSES)
def test_number_of_operations_does_not_grow_with_the_batch(name: str) -> None:
    """At a fixed number of tiles; the reference, a loop over pairs, shows what growth looks like."""
    case = TWO_VIEW_LOSSES[name]
    counts = set()
    for batch in (8, 64):
        z1, z2 = rows(2, batch, 3)
        with tile_size(batch):
            counts.add(watched(lambda a, b: case.loss(a, b, temperature=5.0), z1, z2).operations)
    assert len(counts) == 1
    few, more = (
        watched(lambda a, b: case.reference(a, b, 0.2, None), *rows(2, batch, 2)).operations for batch in (3, 4)
    )
    assert more > few


@pytest.mark.parametrize("mining", ["hard", "semi-hard", "all"])
def test_mining_triplets_takes_as_many_operations_for_any_batch(mining: str) -> None:
    counts = {
        watched(
            lambda z: losses.batch_triplet(z, torch.arange(len(z)) % 3, margin=0.3, mining=mining), rows(batch, 3)
        ).operations
        for batch in (9, 90)
    }
    assert len(counts) == 1


# 8. "Optimised" variants that still build the whole matrix.

LINEAR: dict[str, Function] = {
    **{name: partial(case.loss, temperature=0.2) for name, case in TWO_VIEW_LOSSES.items()},
    **{
        f"{name}, four large classes": lambda a, b, case=case: case.loss(
            a, b, temperature=0.2, ids=torch.arange(len(a)) % 4
        )
        for name, case in TWO_VIEW_LOSSES.items()
    },
    **{f"{name}, low temperature": partial(case.loss, temperature=0.005) for name, case in TWO_VIEW_LOSSES.items()},
    "info_nce with a queue": lambda a, b: info_nce(a[:512], b[:512], a.flip(1), temperature=0.2),
    "two-way": lambda a, b: torch.cat(similarity_logsumexp_two_way(a, b, scale=1.0)),
    "nce, shared noise": lambda a, b: losses.nce(a, b, a.flip(1), temperature=0.2, bank_size=5000),
}


@pytest.mark.parametrize("name", LINEAR)
def test_no_tensor_near_the_size_of_the_matrix_is_ever_made(name: str) -> None:
    """1,024 pairs are a matrix of at least half a million entries; a tile is 65,536."""
    z1, z2 = rows(2, 1024, 8, dtype=torch.float32)
    with tile_size(256):
        assert watched(LINEAR[name], z1, z2).largest <= 256 * 256


def test_the_dense_loss_does_make_the_matrix_and_agrees() -> None:
    z1, z2 = rows(2, 1024, 8)
    assert watched(lambda a, b: dense_nt_xent(a, b, 0.2), z1, z2).largest == 2048 * 2048
    assert_near(nt_xent(z1, z2, temperature=0.2), dense_nt_xent(z1, z2, 0.2), 1e-10)


# 9. Hard negatives mined for one view only.


def test_hard_negatives_are_mined_for_both_views() -> None:
    z1, z2 = rows(2, 4, 3)
    for loss, definition in (
        (partial(top_k_info_nce, k=1), lambda a, b, t: top_k_info_nce_reference(a, b, t, 1)),
        (partial(losses.hard_negative, beta=2.0), lambda a, b, t: hard_negative_reference(a, b, t, 2.0)),
    ):
        plain = nt_xent_reference(z1, z2, 0.3)
        both = loss(z1, z2, temperature=0.3, reduction="none")
        mined_for_the_first = torch.cat([definition(z1, z2, 0.3)[:4], plain[4:]])
        assert_near(both, definition(z1, z2, 0.3), 1e-10)
        assert ((both - mined_for_the_first)[4:].abs() > 1e-3).all()
        # neither view is the first: exchanged, they exchange their rows
        assert_near(loss(z2, z1, temperature=0.3, reduction="none"), both.roll(4), 1e-12)


def test_hardest_negative_may_be_of_either_view() -> None:
    z1 = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.1]], dtype=torch.float64)
    z2 = torch.tensor([[1.0, 0.1], [0.9, 0.5], [-1.0, 0.0]], dtype=torch.float64)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    hardest = z[0] @ z[4]  # of z1's first row: z2's second, not z1's
    assert hardest > z[0] @ z[1]
    expected = torch.log1p((hardest / 0.5 - z[0] @ z[3] / 0.5).exp())
    assert_near(top_k_info_nce(z1, z2, temperature=0.5, k=1, reduction="none")[0], expected, 1e-12)


# 10. A default temperature, credited to the wrong paper.


@pytest.mark.parametrize("name", losses.__all__)
def test_no_loss_has_a_default_temperature_or_takes_one_by_position(name: str) -> None:
    parameters = inspect.signature(getattr(losses, name)).parameters
    given = {"temperature", "scale", "bias", "logit_scale", "logit_bias", "margin", "k"} & parameters.keys()
    for knob in given:
        assert parameters[knob].default is inspect.Parameter.empty, knob
        assert parameters[knob].kind is inspect.Parameter.KEYWORD_ONLY, knob
    if name in {
        "info_nce",
        "nt_xent",
        "nt_xent_views",
        "decoupled",
        "symmetric_info_nce",
        "debiased",
        "hard_negative",
        "sup_con",
        "nce",
    }:
        assert "temperature" in given


def test_left_out_temperature_is_an_error() -> None:
    with pytest.raises(TypeError, match="temperature"):
        nt_xent(rows(2, 3), rows(2, 3))  # type: ignore[call-arg]


# 4, in the part that concerns a loss: a queue that nobody normalised.


def test_queue_need_not_be_normalised_beforehand() -> None:
    q, p = rows(2, 3, 4)
    queue = rows(6, 4, seed=1) * torch.logspace(-3, 3, 6, dtype=torch.float64)[:, None]
    found = info_nce(q, p, queue, temperature=0.07)
    assert_near(found, info_nce(q, p, F.normalize(queue, dim=1), temperature=0.07), 1e-10)
    raw = torch.cat([F.normalize(p, dim=1)[:, None], queue.expand(3, -1, -1)], 1)
    logits = torch.einsum("bd,bnd->bn", F.normalize(q, dim=1), raw) / 0.07
    wrong = (logits.logsumexp(1) - logits[:, 0]).mean()
    assert abs(found - wrong) > 1
