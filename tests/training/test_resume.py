"""A run stopped anywhere and resumed ends in the same weights, bit for bit."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import nearfar
from nearfar.config import TrainConfig, build, completed
from nearfar.data.config import DataConfig
from nearfar.modalities.image.data.opening import find_images
from nearfar.modalities.image.data.shard_writer import write_shards
from nearfar.model import checkpoint
from nearfar.training.callbacks import TrainingMonitor
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from nearfar.training.train import resume_run
from tests.support.facts import facts, tells
from tests.training.runs import QUIET, config, stop_after, weights


@pytest.mark.parametrize(
    ("method", "stops", "options"),
    [
        ("simclr", [1, 4, 7], {}),
        ("moco", [3, 7], {}),
        ("byol", [7], {}),
        ("instdisc", [7], {}),
        ("instdisc", [7], {"noise": 32, "noise_per_sample": True}),
        ("simclr_v2", [7], {"kept_layers": 1}),
    ],
)
def test_a_stopped_run_resumes_to_the_same_weights(
    method: str,
    stops: list[int],
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    train_only: None,
) -> None:
    settings = config(method, **({"options": options} if options else {}))
    whole = Run(settings, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    for steps in stops:  # within the first epoch, and within the second
        folder = tmp_path / f"stopped-{steps}"
        with monkeypatch.context() as patch:
            stop_after(steps, patch)
            stopped = Run(settings, folder, resume=False, console=QUIET)
            with pytest.raises(TrainingStopped):
                stopped.execute()
        resumed = Run(settings, folder, resume=True, console=QUIET)
        resumed.execute()
        for name, x in weights(whole).items():
            assert torch.equal(x, weights(resumed)[name]), (steps, name)


def test_python_resumes_a_run_as_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], train_only: None
) -> None:
    whole = Run(config("simclr", epochs=3), tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            Run(config("simclr", epochs=3), folder, resume=False, console=QUIET).execute()
    for given in ({"data": "icons"}, {"out": "elsewhere"}, {"batch_size": 8}, {"image_size": 64}):
        with pytest.raises(ValueError, match=facts(f"resume {next(iter(given))}")):
            nearfar.train(resume=folder, **given)  # type: ignore[arg-type]
    encoder = nearfar.train(resume=folder)
    for name, x in whole.setup.method.encoder.state_dict().items():
        assert torch.equal(x, encoder.backbone.state_dict()[name]), name
    capsys.readouterr()
    nearfar.train(resume=folder, epochs=4)
    heard = capsys.readouterr().out
    assert tells(heard, "epochs: 3 to 4") and TrainConfig.from_yaml(folder / "config.yaml").epochs == 4


def pictures(folder: Path, count: int) -> None:
    """JPEG files of odd sizes, one of them broken."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        pixels = rng.integers(0, 256, (24 + number % 9, 31, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03}.jpg")
    (folder / "007.jpg").write_bytes(b"no picture")


def test_a_run_on_streamed_files_resumes_in_the_middle_of_an_epoch_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    pictures(tmp_path / "photos", 70)
    streamed = config("moco", data=DataConfig(str(tmp_path / "photos"), stream=True), batch_size=16)
    whole = Run(streamed, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    assert whole.setup.total_steps == 8  # two epochs of four
    for steps in (3, 6):
        folder = tmp_path / f"stopped-{steps}"
        with monkeypatch.context() as patch:
            stop_after(steps, patch)
            with pytest.raises(TrainingStopped):
                Run(streamed, folder, resume=False, console=QUIET).execute()
        resumed = Run(streamed, folder, resume=True, console=QUIET)
        resumed.execute()
        for name, x in weights(whole).items():
            assert torch.equal(x, weights(resumed)[name]), (steps, name)
    assert (tmp_path / "whole" / "skipped.txt").read_text().startswith("007.jpg\t")


def test_data_that_go_during_a_run_end_it_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    """It was trained on gray squares to its end."""
    pictures(tmp_path / "photos", 70)
    streamed = config("moco", data=DataConfig(str(tmp_path / "photos"), stream=True), batch_size=16)
    original = TrainingMonitor.on_train_batch_end
    ends: list[int] = []

    def move(self: TrainingMonitor, *arguments: Any) -> None:
        ends.append(1)
        if len(ends) == 2:
            (tmp_path / "photos").rename(tmp_path / "moved")
        original(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(ValueError, match=facts("16 file not found")) as error:
        patch.setattr(TrainingMonitor, "on_train_batch_end", move)
        Run(streamed, tmp_path / "run", resume=False, console=QUIET).execute()
    assert "\n" not in str(error.value) and 2 <= len(ends) < 8
    (tmp_path / "moved").rename(tmp_path / "photos")
    resume_run(tmp_path / "run", console=QUIET)
    assert checkpoint.load_newest(tmp_path / "run" / "checkpoints")[0]["step"] == 8


def test_a_table_that_became_shorter_is_not_resumed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    table, rng = tmp_path / "a.csv", np.random.default_rng(0)
    lines = ["a,b,c", *(",".join(map(str, row)) for row in rng.normal(size=(80, 3)))]
    table.write_text("\n".join(lines))
    own = {"steps": 6, "batch_size": 16, "checkpoint_every": 1}
    tabular: TrainConfig = build(TrainConfig, {**completed({"data": str(table), "method": "scarf"}), **own}, "train")
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(TrainingStopped):
            Run(tabular, tmp_path / "run", resume=False, console=QUIET).execute()
    table.write_text("\n".join(lines[:70]))
    with pytest.raises(ValueError, match=facts("data changed")) as error:
        resume_run(tmp_path / "run", console=QUIET)
    assert "\n" not in str(error.value)


def test_a_run_on_streamed_shards_resumes_in_the_middle_of_an_epoch_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    write_shards(find_images("glyphs:90"), tmp_path / "shards", samples=20, progress=False)
    shards = DataConfig(str(tmp_path / "shards"), stream=True, shuffle_window=30)
    streamed = config("simclr", data=shards, batch_size=16)
    whole = Run(streamed, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    assert (
        whole.setup.total_steps == 10
        and whole.setup.loader.parts is not None
        and int(whole.setup.loader.parts.max()) == 4
    )
    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stop_after(7, patch)
        with pytest.raises(TrainingStopped):
            Run(streamed, folder, resume=False, console=QUIET).execute()
    resumed = Run(streamed, folder, resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_a_broken_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            Run(config("simclr"), tmp_path, resume=False, console=QUIET).execute()
    newest = checkpoint.numbered(tmp_path / "checkpoints")[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    state, path, broken = checkpoint.load_newest(tmp_path / "checkpoints")
    assert state["step"] == 2 and broken == [newest] and path != newest


def test_nothing_to_resume_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=facts("checkpoint")):
        checkpoint.load_newest(tmp_path)


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step-000000001.pt"
    checkpoint.save({"step": 1}, path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError):
        checkpoint.save({"step": 2}, path)
    assert checkpoint.load(path)["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_fewer_epochs_than_were_made_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record would say that the weights are younger than they are."""
    stop_after(7, monkeypatch)
    with pytest.raises(TrainingStopped):
        Run(config("simclr"), tmp_path, resume=False, console=QUIET).execute()
    with pytest.raises(ValueError, match=facts("7 5")):
        Run(config("simclr", epochs=1), tmp_path, resume=True, console=QUIET)


def test_an_edited_configuration_is_told_by_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(2, monkeypatch)
    with pytest.raises(TrainingStopped):
        Run(config("simclr"), tmp_path / "run", resume=False, console=QUIET).execute()
    file = tmp_path / "run" / "config.yaml"
    file.write_text(file.read_text().replace("  warmup_ratio: 0.05\n", "  warmup_ratio: 0.1\n"))
    console = Console(record=True, width=400, file=io.StringIO())
    Run(TrainConfig.from_yaml(file), tmp_path / "run", resume=True, console=console)
    assert "optimizer.warmup_ratio: 0.05 to 0.1" in console.export_text()
