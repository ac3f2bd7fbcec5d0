"""No loss reads a value from its device. The meta device stands in for an accelerator: it has no values to read."""

import pytest
import torch

from nearfar.losses import reference, tile_size
from tests.losses.agreement import tiles_of


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("side", [None, 8])
@pytest.mark.parametrize("name", reference.DEFINITIONS)
def test_a_step_waits_for_nothing(name: str, side: int | None, learned: bool) -> None:
    definition = reference.DEFINITIONS[name]
    z1, z2 = (torch.empty(12, 8, device="meta", requires_grad=True) for _ in range(2))
    temperature = torch.empty((), device="meta", requires_grad=True) if learned else 0.2
    with tiles_of(side):
        definition.call(definition.loss, z1, z2, temperature).backward()  # type: ignore[arg-type]
    assert z1.grad is not None and z1.grad.shape == z1.shape


@pytest.mark.parametrize("name", ["nt_xent", "symmetric_info_nce", "sigmoid_pairs", "top_k_info_nce", "hard_negative"])
def test_given_ids_stay_where_they_are(name: str) -> None:
    definition = reference.DEFINITIONS[name]
    z1, z2 = (torch.empty(12, 8, device="meta", requires_grad=True) for _ in range(2))
    ids = torch.empty(12, dtype=torch.long, device="meta")
    with tile_size(8):
        definition.call(lambda *args, **options: definition.loss(*args, ids=ids, **options), z1, z2, 0.2).backward()  # type: ignore[arg-type]
    assert z2.grad is not None
