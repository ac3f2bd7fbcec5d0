"""One folder, one run: nothing is overwritten, mixed or measured on what it was trained on."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.data.cache import locked
from nearfar.data.config import DataConfig
from nearfar.modalities.base import Modality
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data.opening import image_files
from nearfar.modalities.image.data.shard_writer import write_shards
from nearfar.training.build_method import build_method
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import all_tell, facts, tells
from tests.training.runs import QUIET, config, shown, stop_after


def photos(folder: Path, count: int, *, classes: int = 2) -> Path:
    for i in range(count):
        file = folder / f"class{i % classes}" / f"{i:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8, 3), np.uint8)).resize((40, 40)).save(file)
    return folder


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(FileExistsError, match=facts("run already")):
        nearfar.train("glyphs:100", backbone="micro", out=tmp_path / "run")
    assert main(["train", "--data", "glyphs:100", "--out", str(tmp_path / "run")]) != 0
    assert "--resume" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["test", "val"])
def test_a_folder_with_a_test_part_is_not_trained_on_it(name: str, tmp_path: Path) -> None:
    photos(tmp_path / "data" / "train", 24)
    photos(tmp_path / "data" / name, 12)
    said, data = io.StringIO(), str(tmp_path / "data")
    console = Console(file=said, width=1000)
    run = Run(TrainConfig(data=data, backbone="micro"), tmp_path / "run", resume=False, console=console)
    assert (
        len(run.setup.train) + len(run.setup.validation or []) == 24
        and run.setup.test is not None
        and len(run.setup.test) == 12
    )
    assert run.setup.splits.test_name == name
    other = DataConfig(data, test=str(photos(tmp_path / "other", 10)))
    run = Run(TrainConfig(data=other, backbone="micro"), tmp_path / "run", resume=False, console=QUIET)
    assert run.setup.test is not None and len(run.setup.test) == 10


def test_a_run_is_not_written_among_other_files_or_into_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, other = photos(tmp_path / "data", 4), photos(tmp_path / "other", 2)
    monkeypatch.setattr(Run, "__init__", lambda *_, **__: pytest.fail("it began"))
    for out, said in ((other, f"{other} class0"), (data / "run", f"{data}")):
        assert main(["train", "--data", str(data), "--out", str(out)]) == 1
        assert tells(line := capsys.readouterr().err, said) and len(line.splitlines()) == 1
        assert not (data / "run").exists()
    monkeypatch.chdir(data)
    for command in (["train", "--data", ""], ["shard", "", "-o", str(tmp_path / "s")]):
        assert main(command) == 1
        assert tells(capsys.readouterr().err, "''")
    for out in (".", "below", str(tmp_path)):
        assert main(["shard", str(data), "-o", out]) == 1
        assert tells(capsys.readouterr().err, "data")
    assert (
        sorted(path.name for path in data.iterdir()) == ["class0", "class1"] and not (tmp_path / "index.json").exists()
    )


def test_a_small_folder_is_trained_in_smaller_batches(tmp_path: Path) -> None:
    """The bare command on a few pictures; a batch that was asked for is kept, and refused."""
    few = str(photos(tmp_path / "few", 60))
    said = Console(record=True, width=200, file=io.StringIO())
    run = Run(TrainConfig(data=few, backbone="micro"), tmp_path / "run", resume=False, console=said)
    assert run.setup.config.batch_size == 16 and len(run.setup.train) == 60 and len(run.setup.loader) == 3
    assert tells(said.export_text(), "60 256 16 --batch-size")
    with pytest.raises(ValueError, match=facts("60 100 --batch-size")):
        Run(TrainConfig(data=few, backbone="micro", batch_size=100), tmp_path / "run", resume=False, console=QUIET)


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(tmp_path / "run"):  # as another process has it
        assert main(["train", "--data", "glyphs:100", "--backbone", "micro", "--out", str(tmp_path / "run")]) == 1
    assert tells(capsys.readouterr().err, "process")


def test_a_stopped_run_in_python_is_an_interrupt_with_the_way_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match=facts("nearfar train --resume")):
        nearfar.train("glyphs:100", backbone="micro", epochs=1, batch_size=32, out=tmp_path / "run")


def test_what_is_not_held_out_is_not_measured(tmp_path: Path) -> None:
    few = config("simclr", data=DataConfig(str(photos(tmp_path / "few", 40)), labels=True), batch_size=16)
    results = Run(few, tmp_path / "run", resume=False, console=QUIET).execute()
    assert results is not None and results.rows == []
    assert all_tell(results.notes, ["40 --data.test"])
    assert shown(tmp_path / "run", "40 of 40 training samples").labels.max() == 1


def test_streamed_data_are_measured_on_held_out_samples_and_other_test_data_are_named(tmp_path: Path) -> None:
    data, test = photos(tmp_path / "train", 96), photos(tmp_path / "other", 24)
    streams = DataConfig(str(data), labels=True, stream=True)
    streamed = config("simclr", data=streams, batch_size=16, epochs=1)
    run = Run(streamed, tmp_path / "a", resume=False, console=QUIET)
    assert run.setup.validation is not None and not set(run.setup.validation.names) & set(run.setup.train.names)
    results = run.execute()
    assert results is not None and {(row.split, row.n, row.data) for row in results.rows} == {
        ("validation", 9, str(data))
    }
    tested = replace(streamed, data=replace(streams, test=str(test)))
    results = Run(tested, tmp_path / "b", resume=False, console=QUIET).execute()
    named = ("test", 24, f"{data}, tested on {test}")
    assert results is not None and {(row.split, row.n, row.data) for row in results.rows} == {named}
    for protocol in ("knn", "linear"):
        assert len(list((tmp_path / "b" / "evaluation").rglob(f"{protocol}-trained.*"))) == 2  # arrays and picture
    samples = shown(tmp_path / "b", "Confusion: trained")
    assert samples.data.tolist() == [f"{data}, tested on {test}", "test", "24"] and np.isfinite(samples.positive)


def test_a_lost_shard_is_told_with_its_samples(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    write_shards(image_files(photos(tmp_path / "data", 40)), shards, samples=10, progress=False)
    (shards / "shard-000002.tar").unlink()
    streamed = config("simclr", data=DataConfig(str(shards), stream=True), batch_size=16)
    console = Console(file=io.StringIO(), width=80)
    run = Run(streamed, tmp_path, resume=False, console=console)
    run._list_skipped()
    said = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all_tell(said, [f"{shards / 'shard-000002.tar'}: 10 index.json", f"10 {tmp_path / 'skipped.txt'}"])


def test_waiting_for_other_processes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr("nearfar.training.fit.make_trainer", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Run(config("simclr", processes=3), tmp_path, resume=False, console=console)._fit()
    assert tells(console.file.getvalue(), "2 processes")  # type: ignore[attr-defined]


def test_a_run_is_not_resumed_on_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None) -> None:
    settings = config("simclr", data=str(photos(tmp_path / "data", 96)), batch_size=16)
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(TrainingStopped):
            Run(settings, tmp_path / "run", resume=False, console=QUIET).execute()
    next((tmp_path / "data" / "class0").iterdir()).unlink()
    with pytest.raises(ValueError, match=facts("data changed step-000000002.pt")):
        Run(settings, tmp_path / "run", resume=True, console=QUIET)


def test_flags_beside_resume_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", "anywhere", "--method", "byol"]) == 2
    assert tells(capsys.readouterr().err, "--method")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--method", "mocoo"], "'mocoo' 'moco'"),
        (["--views", "simcl"], "'simcl' 'simclr'"),
        (["--options.temprature", "0.2"], "simclr 'temprature' 'temperature'"),
        (["--backbone", "micrp"], "'micrp' 'micro'"),
        (["--optimizer.lrr", "1"], "'optimizer.lrr' 'optimizer.lr'"),
        (["--device", "abacus"], "device 'abacus'"),
        (["--config", "twice.yaml"], "twice.yaml YAML 'epochs'"),
    ],
)
def test_a_mistake_is_told_before_the_data_are_opened(
    flags: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Modality, "split", lambda self: pytest.fail("the data were opened"))
    Path("twice.yaml").write_text("epochs: 1\nseed: 3\nepochs: 2\n")
    Path("photos").mkdir()
    assert main(["train", "--data", "photos", *flags]) != 0
    assert tells(capsys.readouterr().err, said) and {path.name for path in tmp_path.iterdir()} == {
        "photos",
        "twice.yaml",
    }


@pytest.mark.parametrize("data", ["melodies:10", "waves", "lines.txt", "recordings"])
def test_only_images_become_shards(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recordings").mkdir()
    Path("recordings/a.wav").touch()
    assert main(["shard", data, "-o", "shards"]) == 1
    said = capsys.readouterr().err
    assert tells(said, "images") and not Path("shards").exists()


def test_a_run_begins_with_the_weights_of_a_file(tmp_path: Path) -> None:
    torch.manual_seed(5)
    given = backbone("micro")
    torch.save(given.state_dict(), tmp_path / "weights.pt")
    settings = config("simclr", weights=str(tmp_path / "weights.pt"))
    begun, drawn = build_method(settings, 100), build_method(settings, 100, untrained=True)
    assert torch.equal(begun.encoder.stem.weight, given.stem.weight)
    assert not torch.equal(drawn.encoder.stem.weight, given.stem.weight), "the baseline has the given weights"


def test_the_published_stem_stays_where_the_weights_are_published() -> None:
    small, published = backbone("resnet18", size=32), backbone("resnet18", size=32, published_stem=True)
    assert small.conv1.kernel_size == (3, 3) and published.conv1.kernel_size == (7, 7)


def test_an_encoder_says_what_it_wants(tmp_path: Path) -> None:
    encoder = nearfar.train("glyphs:100", backbone="micro", epochs=1, batch_size=32, out=tmp_path / "run")
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(TypeError, match=facts("encode(images)")):
        encoder(images)
    assert encoder.encode(images).shape == (2, encoder.num_features)


def test_training_on_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=facts("data None 'glyphs'")):
        nearfar.train(None)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
