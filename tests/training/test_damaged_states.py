"""What is whole by its sum and still no good: a checkpoint without a part, or of weights that are no numbers."""

import signal
from pathlib import Path

import pytest
import torch

from nearfar.cli.errors import error_line
from nearfar.losses import nt_xent
from nearfar.model import checkpoint
from nearfar.plugins import import_object, named_by
from nearfar.training.signals import stop_after_step
from tests.support.facts import facts, tells


def test_a_checkpoint_without_a_part_or_with_nan_is_not_the_newest(tmp_path: Path) -> None:
    whole = {"step": 1, "method": {"w": torch.ones(3)}, "config": "{}"}
    checkpoint.save_step(whole, tmp_path, 1)
    for bad in (
        {"step": 2, "config": "{}"},
        {**whole, "method": {"w": torch.tensor([1.0, float("nan")])}},
        {**whole, "method": 3},
        {**whole, "method": {"w": torch.sparse_coo_tensor([[0]], [1.0], (10**12,))}},
    ):
        checkpoint.save_step({**bad, "step": 2}, tmp_path, 2)
        state, path, broken = checkpoint.load_newest(tmp_path, ("config", "method"))
        assert (
            state["step"] == 1
            and path.name == "step-000000001.pt"
            and [each.name for each in broken] == ["step-000000002.pt"]
        )


def test_a_second_ctrl_c_says_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), stop_after_step(lambda number: None):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert tells(capsys.readouterr().err, "again checkpoint")


def test_a_number_beyond_floats_is_a_line() -> None:
    z = torch.randn(2, 4, 3)
    with pytest.raises(ValueError, match=facts("temperature 308")):
        nt_xent(z[0], z[1], temperature=10**400)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")]
)
def test_a_full_memory_says_a_way_out(error: Exception) -> None:
    assert tells(error_line(error), "memory --batch-size plan")


def test_code_that_a_run_names_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "of_a_stranger.py").write_text("Thing = 1\n")
    monkeypatch.chdir(tmp_path)
    with named_by(tmp_path / "run" / "config.yaml"):
        assert import_object("of_a_stranger:Thing", "method") == 1
    assert tells(capsys.readouterr().err, f"{tmp_path / 'run' / 'config.yaml'} of_a_stranger:Thing of_a_stranger.py")
    assert import_object("of_a_stranger:Thing", "method") == 1 and not capsys.readouterr().err
