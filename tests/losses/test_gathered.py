"""A loss of the rows of one process of several warns, and the warning names the line that called the loss."""

import pytest
import torch
import torch.distributed as dist

from nearfar.losses.engine import gathered
from tests.losses.agreement import rows
from tests.losses.catalogue import TWO_VIEW_LOSSES


@pytest.mark.parametrize(
    "name", ["nt_xent", "info_nce", "symmetric_info_nce", "sigmoid_pairs", "hard_negative, beta 1"]
)
def test_the_warning_names_the_callers_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered._Known, "done", False)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    z1, z2 = rows(2, 6, 4)
    loss = TWO_VIEW_LOSSES[name].loss
    with pytest.warns(UserWarning, match="gather_rows") as caught:
        loss(z1.requires_grad_(), z2, temperature=0.5)
        loss(z1, z2, temperature=torch.tensor(0.5))
    assert len(caught) == 1
    assert "nearfar/losses" not in caught[0].filename
