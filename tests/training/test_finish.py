"""A stopped run is usable as it is; `nearfar finish` writes its model; and it resumes as before."""

from pathlib import Path

import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.explore.open_run import open_run
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts, tells
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
    early = nearfar.load(folder)
    assert tells(capsys.readouterr().err, f"{folder} 7 --resume") and early.card["stopped_at_step"] == 7
    assert main(["finish", str(folder)]) == 0
    assert "7" in capsys.readouterr().out
    encoder = nearfar.load(folder)
    assert encoder.card["stopped_at_step"] == 7 and encoder.digest() == early.digest()
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


def test_every_command_opens_a_stopped_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    stopped = Run(config("simclr", embedding="plain"), folder, resume=False, console=QUIET)
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            stopped.execute()
    file = str(tmp_path / "x.parquet")
    assert main(["embed", str(folder), "glyphs:60", "-o", file]) == 0
    assert tells(capsys.readouterr().err, f"{folder} 3")
    rows = nearfar.evaluate(folder, "glyphs:60", protocols=["knn"]).rows
    assert {"trained", "untrained"} <= {row.encoder for row in rows}
    assert nearfar.load(nearfar.export(folder, out=tmp_path / "out").path).card["stopped_at_step"] == 3
    opened = open_run(str(folder), lambda spec: nearfar.load(spec), data="glyphs:60")
    assert opened.space is not None and len(opened.space) == 60


def test_a_stopped_run_with_a_network_of_ones_own_is_given_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2), torch.nn.ReLU())
    images = torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8)
    with monkeypatch.context() as patch:
        stop_after(1, patch)
        with pytest.raises(TrainingStopped):
            nearfar.train(images, encoder=network, out=tmp_path / "run", epochs=2, batch_size=16, device="cpu")
    encoder = nearfar.load(tmp_path / "run", encoder=network)
    assert encoder.encode(images[:2]).shape == (2, 8)
