"""Sounds go through the same run as images: every method, stop and resume, evaluation, embedding, search."""

from pathlib import Path
from typing import Any

import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig, completed
from nearfar.evaluation.results import Results
from nearfar.methods import METHODS
from nearfar.modalities import make_modality
from nearfar.modalities.sound.logmel import LogMelStatistics
from nearfar.modalities.sound.modality import SoundModality
from nearfar.report.thumbnail_sheet import sheet_side
from nearfar.settings import build
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.methods.test_every_method import SMALL
from tests.support.facts import tells
from tests.support.sounds import RATE, recordings
from tests.training.runs import QUIET, shown, stop_after, weights

BY_NAME = {"pattern": "{label}_{speaker}_{take}", "held_out": "speaker=cem"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))


def of_sounds(**settings: Any) -> TrainConfig:
    given = {
        "data": "melodies:40",
        "method": "simclr",
        "backbone": "audio-micro",
        "epochs": 1,
        "batch_size": 16,
        "checkpoint_every": 1,
        "sound": {"crop_seconds": 0.3, "n_mels": 16},
    }
    merged = {**given, **settings, "sound": {**given["sound"], **settings.get("sound", {})}}  # type: ignore[dict-item]
    config: TrainConfig = build(TrainConfig, completed(merged), "test")
    return config


def test_the_kind_of_data_is_seen(tmp_path: Path) -> None:
    folder = recordings(tmp_path / "words", words=1, speakers=1, takes=2)
    assert completed({"data": str(folder)})["modality"] == "sound"
    assert "modality" not in completed({"data": str(tmp_path)} | {"data": "photos/"})
    for config in (of_sounds(), of_sounds(data=str(folder)), TrainConfig(method="byol_a")):
        assert isinstance(make_modality(config), SoundModality)


@pytest.mark.parametrize("method", [name for name, kind in METHODS.items() if "sound" in kind.modalities])
def test_every_method_trains_on_sounds(method: str, tmp_path: Path, train_only: None) -> None:
    options = {**SMALL, "byol_a": SMALL["byol"], "cpc": {"horizons": 2}, "pairs": {}}.get(method, {})
    backbone = "cpc-8k-small" if method == "cpc" else "audio-micro"
    run = Run(
        of_sounds(method=method, backbone=backbone, options=options), tmp_path / "run", resume=False, console=QUIET
    )
    before = {name: x.clone() for name, x in run.setup.method.encoder.named_parameters()}
    run.execute()
    after = dict(run.setup.method.encoder.named_parameters())
    assert all(bool(x.isfinite().all()) for x in after.values())
    assert any(not torch.equal(before[name], x) for name, x in after.items())
    assert (tmp_path / "run" / "views.png").is_file()


@pytest.mark.parametrize("method", ["byol_a", "simclr"])
def test_a_stopped_run_resumes_to_the_same_weights(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    config = of_sounds(method=method, options=SMALL["byol"] if method == "byol_a" else {}, epochs=2)
    whole = Run(config, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(TrainingStopped):
            Run(config, folder, resume=False, console=QUIET).execute()
    resumed = Run(config, folder, resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def trained(tmp_path: Path, **settings: Any) -> Path:
    folder = recordings(tmp_path / "words")
    (folder / "broken.wav").write_text("no sound")
    given = {"data": {"path": str(folder), **BY_NAME}, "batch_size": 8, "sound": {"sample_rate": RATE}}
    run = Run(of_sounds(**(given | settings)), tmp_path / "run", resume=False, console=QUIET)
    assert run.execute() is not None
    return tmp_path / "run"


def test_a_run_on_files_is_evaluated_loaded_and_reported(tmp_path: Path) -> None:
    folder = trained(tmp_path)
    results = Results.load(folder / "evaluation.json")
    assert {row.encoder for row in results.rows} == {"trained", "untrained", "raw", "MFCC"}
    assert {row.n for row in results.rows} == {12}  # the held-out speaker's
    assert results.value("raw", "knn", "accuracy") == 1.0  # another pitch is another word
    assert (folder / "report.html").is_file() and "broken.wav" in (folder / "skipped.txt").read_text()
    samples = shown(folder, "0")
    assert len(samples) == 12 and sheet_side(samples.sheet.tobytes(), 12) == 48
    model = nearfar.load(folder)
    assert isinstance(model.modality, SoundModality) and model.modality.sample_rate == RATE
    files = [tmp_path / "words" / f"0_{speaker}_0.wav" for speaker in ("ann", "cem")]  # of unequal length
    both = model.encode(files)
    assert both.shape == (2, model.num_features)
    torch.testing.assert_close(both[:1], model.encode(files[:1]))
    h, present = model.frames(model.prepare(torch.zeros(1, 4000, dtype=torch.int16)))
    assert h.shape[:2] == present.shape


def test_a_run_on_waves_is_evaluated_and_loaded(tmp_path: Path) -> None:
    folder = trained(tmp_path, method="cpc", backbone="cpc-8k-small", options={"horizons": 2})
    model = nearfar.load(folder)
    files = [tmp_path / "words" / f"0_{speaker}_0.wav" for speaker in ("ann", "cem")]
    torch.testing.assert_close(model.encode(files)[:1], model.encode(files[:1]), atol=1e-5, rtol=1e-4)


def test_evaluate_embed_and_search_take_sounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, words = trained(tmp_path), tmp_path / "words"
    few = ["--protocols.finetune.per_class=[1,2]", "--protocols.finetune.epochs=1"]
    assert main(["evaluate", str(folder), "--protocol", "finetune", "retrieval", "geometry", "frames", *few]) == 0
    results = Results.load(folder / "evaluation.json")
    for encoder in ("trained", "untrained"):
        for count in (1, 2):
            assert results.value(encoder, "finetune", f"accuracy, {count} a class") is not None
    index = tmp_path / "words.parquet"
    assert main(["embed", str(folder), str(words), "-o", str(index)]) == 0
    frames = tmp_path / "frames.parquet"
    assert main(["embed", str(folder), str(words), "-o", str(frames), "--frames"]) == 0
    sheet = tmp_path / "found.png"
    query = str(words / "1_bob_2.wav")
    assert main(["search", str(folder), str(index), "--sound", query, "-k", "3", "-o", str(sheet)]) == 0
    said = capsys.readouterr().out
    assert "1_bob_2.wav" in said and sheet.is_file()
    assert main(["search", str(folder), str(index), "--image", query]) != 0
    assert main(["search", str(folder), str(index), "--sound", str(words / "broken.wav")]) != 0
    assert tells(capsys.readouterr().err, "sound")
    assert main(["search", str(folder), str(frames), "--sound", query]) == main(["duplicates", str(frames)]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and all(tells(line, "frames.parquet frame") for line in errors)
    assert main(["export", str(folder), "--format", "onnx"]) == 1
    assert tells(capsys.readouterr().err, "format nearfar")


def test_other_labels_are_other_numbers(tmp_path: Path) -> None:
    folder = trained(tmp_path)
    assert main(["evaluate", str(folder), "--protocol", "linear"]) == 0
    who = ["--data", str(tmp_path / "words"), "--data.pattern", "{word}_{label}_{take}"]
    assert main(["evaluate", str(folder), "--protocol", "linear", *who]) == 0
    rows = Results.load(folder / "evaluation.json").rows
    names = {row.data for row in rows if row.protocol == "linear"}
    assert len(names) == 2 and any(name.endswith(" by {word}_{label}_{take}") for name in names)


def test_statistics_over_time_are_those_of_each_sound() -> None:
    x = torch.randn(3, 1, 4, 9)
    x[1, ..., 5:] = torch.nan
    found = LogMelStatistics()(x)
    for row, frames in enumerate((9, 5, 9)):
        own = x[row, 0, :, :frames]
        torch.testing.assert_close(found[row], torch.cat([own.mean(1), own.std(1, correction=0)]))


def test_clipped_sounds_are_told(tmp_path: Path) -> None:
    import numpy as np
    import soundfile

    from tests.support.sounds import tone

    folder = recordings(tmp_path / "words", words=1, speakers=1, takes=2)
    soundfile.write(folder / "loud.wav", np.clip(tone(200, loud=3.0), -1, 1), RATE)
    modality = SoundModality(of_sounds(data=str(folder), sound={"sample_rate": RATE}))
    line = modality.show(modality.open(str(folder)), tmp_path)
    assert tells(line, "1 sound") and (tmp_path / "clipped.txt").read_text() == "loud.wav\n"
