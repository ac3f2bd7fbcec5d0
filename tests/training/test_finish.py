"""A stopped run is usable: `nearfar finish` writes the model of its newest checkpoint, and it resumes as before."""

from pathlib import Path

import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts
from tests.training.runs import QUIET, config, stop_after, weights


@pytest.mark.parametrize(
    "settings",
    [{}, {"data": "waves:100", "backbone": "dilated-small", "modality": "series"}],
)
def test_a_stopped_run_is_opened_after_finish_and_still_resumes(
    settings: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    train_only: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = config("simclr", embedding="plain", **settings)
    whole = Run(made, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    folder, stopped = tmp_path / "run", Run(made, tmp_path / "run", resume=False, console=QUIET)
    with monkeypatch.context() as patch:
        stop_after(7, patch)
        with pytest.raises(TrainingStopped):
            stopped.execute()
    with pytest.raises(FileNotFoundError, match=facts(f"'nearfar finish {folder}'".strip("'"))):
        nearfar.load(folder)
    assert main(["finish", str(folder)]) == 0
    assert "7" in capsys.readouterr().out
    encoder = nearfar.load(folder)
    assert encoder.card["stopped_at_step"] == 7
    for name, x in stopped.setup.method.encoder.state_dict().items():
        assert torch.equal(encoder.backbone.state_dict()[name], x.cpu()), name
    with pytest.raises(FileExistsError, match=facts("model.safetensors")):
        nearfar.finish(folder)
    resumed = Run(made, folder, resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name
    assert "stopped_at_step" not in nearfar.load(folder).card


def test_what_cannot_be_finished_says_why(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=facts("config.yaml")):
        nearfar.finish(tmp_path)
    (tmp_path / "config.yaml").write_text(config("simclr").to_yaml())
    with pytest.raises(FileNotFoundError, match=facts("checkpoint --resume")):
        nearfar.finish(tmp_path)
