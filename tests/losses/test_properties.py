"""What must hold whatever the numbers: Hypothesis draws sizes, ids, temperatures and tiles."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from nearfar.losses import reference, similarity_logsumexp
from tests.losses.agreement import assert_near, number, rows, tiles_of, value_and_gradients
from tests.losses.catalogue import EVERY_LOSS, TWO_VIEW_LOSSES, TwoViewLoss

quick = settings(derandomize=True, deadline=None, max_examples=8, database=None)
seeds = st.integers(0, 2**32 - 1)
temperatures = st.floats(0.005, 100).map(lambda t: round(t, 4)) | st.sampled_from([0.005, 0.01, 0.07, 100.0])
every_two_view_loss = pytest.mark.parametrize("case", TWO_VIEW_LOSSES.values(), ids=TWO_VIEW_LOSSES.keys())


def row_losses(case: TwoViewLoss, z1: Tensor, z2: Tensor, temperature: float | Tensor, ids: Tensor | None) -> Tensor:
    return case.loss(z1, z2, temperature=temperature, ids=ids, reduction="none")


@every_two_view_loss
@quick
@given(seed=seeds, order=st.permutations(range(6)))
def test_permuting_the_batch_permutes_the_row_losses(case: TwoViewLoss, seed: int, order: list[int]) -> None:
    z1, z2 = rows(2, 6, 3, seed=seed)
    ids = torch.tensor([0, 1, 2, 1, 3, 4])
    expected = row_losses(case, z1, z2, 0.2, ids)
    index = torch.tensor([*order, *(i + 6 for i in order)]) if case.stacked else torch.tensor(order)
    with tiles_of(2):
        found = row_losses(case, z1[order], z2[order], 0.2, ids[order])
    assert_near(found, expected[index], 1e-12)


@pytest.mark.parametrize("name", [name for name, case in TWO_VIEW_LOSSES.items() if case.cosine])
@quick
@given(seed=seeds, exponents=st.lists(st.floats(-4, 4), min_size=8, max_size=8))
def test_length_of_embeddings_changes_nothing_under_cosine(name: str, seed: int, exponents: list[float]) -> None:
    z1, z2 = rows(2, 4, 3, seed=seed)
    lengths = torch.tensor(exponents, dtype=torch.float64).exp()[:, None]
    case = TWO_VIEW_LOSSES[name]
    expected = row_losses(case, z1, z2, 0.2, None)
    assert_near(row_losses(case, lengths[:4] * z1, lengths[4:] * z2, 0.2, None), expected, 1e-11)


@every_two_view_loss
@quick
@given(seed=seeds, ids=st.lists(st.integers(-2, 3), min_size=2, max_size=6), side=st.integers(1, 7))
def test_rows_with_one_id_are_as_if_masked_in_the_reference(
    case: TwoViewLoss, seed: int, ids: list[int], side: int
) -> None:
    fewest = min(2 * (len(ids) - ids.count(i)) for i in ids)
    assume(case.fewest == 1 or fewest >= 2)  # two negatives, where the two hardest are asked for
    z1, z2 = rows(2, len(ids), 3, seed=seed)
    same = torch.tensor(ids)
    with tiles_of(side):
        found = row_losses(case, z1, z2, 0.2, same)
    assert_near(found, case.reference(z1, z2, 0.2, same), 1e-10)


def test_masking_a_pair_changes_the_loss_of_its_rows_alone() -> None:
    z1, z2 = rows(2, 5, 3)
    for name in ("info_nce", "nt_xent", "decoupled", "symmetric_info_nce", "sigmoid_pairs"):
        apart = row_losses(TWO_VIEW_LOSSES[name], z1, z2, 0.2, None)
        merged = row_losses(TWO_VIEW_LOSSES[name], z1, z2, 0.2, torch.tensor([0, 1, 2, 1, 4]))
        changed = ((apart - merged).abs() > 1e-9).view(-1, 5)
        assert changed.tolist() == [[False, True, False, True, False]] * len(changed)


@every_two_view_loss
@quick
@given(seed=seeds, batch=st.integers(1, 9), side=st.integers(1, 20), merged=st.booleans())
def test_tile_size_changes_neither_value_nor_gradient(
    case: TwoViewLoss, seed: int, batch: int, side: int, merged: bool
) -> None:
    batch = max(batch, case.fewest)
    ids = torch.arange(batch) // 2 if merged and case.fewest == 1 else None
    inputs = *rows(2, batch, 3, seed=seed), number(0.2)
    whole = value_and_gradients(lambda a, b, t: row_losses(case, a, b, t, ids), *inputs)
    with tiles_of(side):
        tiled = value_and_gradients(lambda a, b, t: row_losses(case, a, b, t, ids), *inputs)
    for a, b in zip(tiled, whole, strict=True):
        assert_near(a, b, 1e-12)


@pytest.mark.parametrize("symmetric", [False, True])
@quick
@given(seed=seeds, side=st.integers(1, 8), off=st.sampled_from([-1, 0, 1]), scale=st.sampled_from([1.0, 300.0]))
def test_sizes_at_the_edge_of_a_tile_equal_the_reference(
    symmetric: bool, seed: int, side: int, off: int, scale: float
) -> None:
    for count in {1, 2, 3, max(1, side + off), max(1, 2 * side + off)}:
        z = rows(count, 3, seed=seed)
        keys = z if symmetric else rows(max(1, side - off), 3, seed=seed + 1)
        with tiles_of(side):
            found = similarity_logsumexp(z, keys, scale=scale)
        assert_near(found, reference.similarity_logsumexp(z, keys, scale), 1e-10)


@every_two_view_loss
@quick
@given(seed=seeds, batch=st.integers(1, 4), temperature=temperatures)
def test_any_sane_temperature_equals_the_reference(
    case: TwoViewLoss, seed: int, batch: int, temperature: float
) -> None:
    inputs = *rows(2, max(batch, case.fewest), 3, seed=seed), number(temperature)
    found = value_and_gradients(lambda a, b, t: row_losses(case, a, b, t, None), *inputs)
    expected = value_and_gradients(lambda a, b, t: case.reference(a, b, t, None), *inputs)
    for a, b in zip(found, expected, strict=True):
        assert a.isfinite().all()
        assert_near(a, b, 1e-9)
    single = value_and_gradients(lambda a, b, t: row_losses(case, a, b, t, None), *(x.float() for x in inputs))
    assert all(x.isfinite().all() for x in single)
    # A similarity rounded to float32 is off by 1e-7, and the temperature divides that too.
    assert_near(single[0], expected[0], 1e-5 * max(1.0, 0.05 / temperature))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_two_view_loss
@quick
@given(seed=seeds, temperature=temperatures, side=st.sampled_from([None, 3]))
def test_half_precision_is_finite_and_summed_in_float32(
    case: TwoViewLoss, dtype: torch.dtype, seed: int, temperature: float, side: int | None
) -> None:
    z1, z2 = (x.requires_grad_() for x in rows(2, 4, 3, seed=seed, dtype=dtype))
    with tiles_of(side):
        each = row_losses(case, z1, z2, temperature, None)
        each.mean().backward()
    assert each.dtype == torch.float32
    expected = case.reference(z1.detach().double(), z2.detach().double(), temperature, None)
    assert_near(each.detach(), expected, 1e-5 * max(1.0, 0.05 / temperature))
    for z in (z1, z2):
        assert z.grad.dtype == dtype
        assert z.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_every_loss_of_half_precision_is_that_of_the_same_numbers_in_float32(name: str, dtype: torch.dtype) -> None:
    z1, z2 = rows(2, 5, 3, dtype=dtype)
    value, *gradients = value_and_gradients(EVERY_LOSS[name], z1, z2)
    expected, *expected_gradients = value_and_gradients(EVERY_LOSS[name], z1.float(), z2.float())
    assert value.dtype == torch.float32
    assert_near(value, expected, 1e-3)  # a queue or noise is rounded too
    for a, b in zip(gradients, expected_gradients, strict=True):
        assert a.dtype == dtype
        assert a.isfinite().all()
        assert_near(a, b, 0.05)


@pytest.mark.parametrize("side", [None, 3])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_autocast_changes_nothing(name: str, side: int | None) -> None:
    inputs = [x.requires_grad_() for x in rows(2, 6, 3, dtype=torch.float32).unbind()]
    loss = EVERY_LOSS[name]
    with tiles_of(side):
        plain = loss(*inputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = loss(*inputs)
    assert cast.dtype == torch.float32
    assert_near(cast.detach(), plain.detach(), 1e-7)
    for a, b in zip(
        torch.autograd.grad(cast, inputs, materialize_grads=True),
        torch.autograd.grad(plain, inputs, materialize_grads=True),
        strict=True,
    ):
        assert_near(a, b, 1e-6)


@pytest.mark.parametrize("name", TWO_VIEW_LOSSES)
def test_backward_under_autocast_changes_nothing(name: str) -> None:
    z1, z2 = rows(2, 6, 3, dtype=torch.float32)
    expected = value_and_gradients(EVERY_LOSS[name], z1, z2)
    for side in (None, 3):
        with tiles_of(side), torch.autocast("cpu", dtype=torch.bfloat16):
            found = value_and_gradients(EVERY_LOSS[name], z1, z2)
        for a, b in zip(found, expected, strict=True):
            assert_near(a, b, 1e-6)


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_not_a_number_in_the_embeddings_is_not_hidden_by_the_loss(name: str) -> None:
    z1, z2 = rows(2, 4, 3)
    z1[1, 0] = torch.nan
    if name.startswith("nce"):  # estimates its normaliser from them first
        with pytest.raises(ValueError, match="log_normalizer is nan"):
            EVERY_LOSS[name](z1, z2)
    else:
        assert EVERY_LOSS[name](z1, z2).isnan()


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_inputs_are_left_as_they_were_and_the_result_is_the_same_twice(name: str) -> None:
    z1, z2 = rows(2, 4, 3)
    first = value_and_gradients(EVERY_LOSS[name], z1, z2)
    second = value_and_gradients(EVERY_LOSS[name], z1, z2)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(torch.stack([z1, z2]), rows(2, 4, 3))
    with torch.inference_mode():
        assert_near(EVERY_LOSS[name](z1, z2), first[0], 1e-12)
