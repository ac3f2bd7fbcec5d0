"""Pictures are told from their mirror images where only one kind occurs."""

import numpy as np
import pytest
import torch
from torch import Tensor

from nearfar.training import mirror_test
from nearfar.training.mirror_test import is_clear, tell_mirrored


def slopes(both: bool) -> Tensor:
    """(480, 3, 16, 16) uint8: waves that rise to the right; of every second one the mirror image, if `both`."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:16, :16]
    waves = [np.sin((x + y) * random.uniform(0.4, 0.9) + random.uniform(0, 6)) for _ in range(480)]
    noisy = np.stack(waves) * 80 + 128 + random.normal(0, 15, (480, 16, 16))
    pictures = torch.from_numpy(noisy.clip(0, 255).astype(np.uint8))[:, None].repeat(1, 3, 1, 1)
    if both:
        pictures[::2] = pictures[::2].flip(-1)
    return pictures


@pytest.mark.parametrize("both", [False, True])
def test_sides_are_told_if_only_one_occurs(both: bool) -> None:
    before = torch.get_rng_state()
    told = tell_mirrored(slopes(both), seed=0)
    assert len(told) == 120 and is_clear(told) != both
    assert both or told.float().mean() > 0.9
    assert torch.equal(before, torch.get_rng_state())


def test_the_same_seed_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_test, "STEPS", 10)
    assert torch.equal(tell_mirrored(slopes(True), seed=3), tell_mirrored(slopes(True), seed=3))
