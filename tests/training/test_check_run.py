"""`nearfar check RUN`: the method of a run, with its weights and its data."""

from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.training.check_run import subject_of_run
from tests.support.facts import tells


def test_a_run_is_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = TrainConfig(data="waves:100", modality="series", backbone="dilated-small", batch_size=32)
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    subject = subject_of_run(tmp_path, rows=9)
    first, second = subject.batches
    assert len(first.index) == len(second.index) == 9 and not set(first.index.tolist()) & set(second.index.tolist())
    assert main(["check", str(tmp_path), "--processes", "1", "--rows", "9"]) == 0
    said = capsys.readouterr().out
    assert "simclr" in said and tells(said, "training agrees")
