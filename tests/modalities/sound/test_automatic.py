"""Automatic settings of runs on sounds: what is chosen in typical situations, and what the user said stays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from nearfar.config import TrainConfig, completed
from nearfar.methods import known_method
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.sound.automatic import SoundFacts, choose, look_at
from nearfar.settings import build


class OnCPU(Request):
    @property
    def device(self) -> torch.device:
        return torch.device("cpu")


class OnGPU(Request):
    @property
    def device(self) -> torch.device:
        return torch.device("cuda")


def chosen(facts: SoundFacts, method: str = "simclr", device: str = "cpu", **given: Any) -> Automatic:
    return choose((OnGPU if device == "cuda" else OnCPU)(given, known_method(method)), facts)


WORDS = SoundFacts(2000, 0.4, 0.6, 8000)


@pytest.mark.parametrize(  # the table of docs/automatic.md
    ("device", "count", "seconds", "hertz", "backbone", "views", "rate", "batch", "length"),
    [
        ("cpu", 2_000, 0.4, 8_000, "audio-quick", "whole", 8_000, 64, 25),
        ("cpu", 5_000, 1.0, 16_000, "audio-quick", "whole", 16_000, 64, 25),
        ("cpu", 500, 3.0, 44_100, "audio-quick", "whole", 16_000, 64, 52),
        ("cpu", 40, 1.0, 22_050, "audio-quick", "whole", 16_000, 16, 160),
        ("cpu", 2_000, 10.0, 44_100, "audio-tiny", "speech", 16_000, 64, 25),
        ("cpu", 20_000, 1.0, 16_000, "audio-quick", "whole", 16_000, 64, "10m"),
        ("cuda", 20_000, 1.0, 16_000, "audio-quick", "whole", 16_000, 64, "4h"),
    ],
)
def test_typical_situations(
    device: str,
    count: int,
    seconds: float,
    hertz: int,
    backbone: str,
    views: str,
    rate: int,
    batch: int,
    length: int | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    found = chosen(SoundFacts(count, seconds, 1.2 * seconds, hertz), device=device).settings
    assert (found["backbone"], found["views"]["preset"], found["sound"]["sample_rate"]) == (backbone, views, rate)
    assert (found["batch_size"], found.get("epochs", found.get("time"))) == (batch, length)
    assert found["optimizer"]["name"] == "muon" and found["options"]["temperature"] == 0.5
    front = (found["sound"].get("trim_db"), found["sound"].get("range_db"))
    assert front == ((20, 45) if views == "whole" else (None, None))


def test_cpc_hears_the_wave_at_its_own_rate() -> None:
    words = chosen(WORDS, "cpc").settings
    assert (words["backbone"], words["batch_size"], words["options"]) == ("cpc-8k-small", 8, {"negatives": "sequence"})
    assert "backbone" not in chosen(SoundFacts(2000, 1.0, 1.2, 16_000), "cpc").settings  # the method's own
    assert not words.keys() & {"precision", "views"}


def test_how_long_is_left_to_a_user_who_says_so() -> None:
    for name in ("epochs", "steps", "time"):
        assert not chosen(WORDS, **{name: 3}).settings.keys() & {"epochs", "steps", "time"}


def recordings(folder: Path, seconds: float = 0.5, rate: int = 8000, count: int = 12) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        values = 0.1 * np.random.default_rng(number).standard_normal(int(seconds * rate))
        soundfile.write(folder / f"{number % 2}_{'ab'[number % 4 // 2]}_{number}.wav", values, rate)
    return folder


def facts_of(path: Path, **data: Any) -> SoundFacts | None:
    return look_at(OnCPU({"data": {"path": str(path), **data}}, known_method("simclr")))


def test_sounds_are_counted_and_measured_without_decoding(tmp_path: Path) -> None:
    assert facts_of(recordings(tmp_path / "a")) == SoundFacts(12, 0.5, 0.5, 8000)
    rows = {"pattern": "{label}_{speaker}_{take}", "held_out": "speaker=b"}
    assert facts_of(tmp_path / "a", **rows) == SoundFacts(6, 0.5, 0.5, 8000)
    recordings(tmp_path / "b" / "train", 2.0, 16_000), recordings(tmp_path / "b" / "test", count=3)
    assert facts_of(tmp_path / "b") == SoundFacts(12, 2.0, 2.0, 16_000)
    (tmp_path / "a" / "broken.wav").write_bytes(b"no sound")
    assert facts_of(tmp_path / "a") == SoundFacts(13, 0.5, 0.5, 8000)
    assert facts_of(tmp_path / "nowhere") is None


def test_what_was_chosen_is_stored_and_what_was_asked_for_stays(tmp_path: Path) -> None:
    data = str(recordings(tmp_path / "a"))
    config = build(TrainConfig, completed({"data": data, "device": "cpu"}), "train")
    assert (config.kind, config.backbone, config.optimizer.name) == ("sound", "audio-quick", "muon")
    assert (config.sound.sample_rate, config.sound.normalize, config.epochs) == (8000, "sound", 267)
    assert any(note.startswith("backbone audio-quick: ") for note in config.notes)
    asked = {"data": data, "device": "cpu", "backbone": "audio-tiny", "views": "simclr", "batch_size": 4, "epochs": 2}
    sound = {"sample_rate": 4000, "normalize": "data"}
    config = build(TrainConfig, completed({**asked, "sound": sound, "optimizer": {"name": "sgd"}}), "train")
    assert (config.backbone, config.views.preset, config.batch_size) == ("audio-tiny", "simclr", 4)
    assert (config.sound.sample_rate, config.sound.normalize, config.optimizer.name) == (4000, "data", "sgd")
    assert config.time is None
    assert not any(note.startswith(("backbone", "views", "batch", "sound.sample", "time")) for note in config.notes)
    assert (config.sound.trim_db, config.sound.range_db) == (20, None)  # a range is below each sound's own loudest


def test_the_recipe_paper_has_nothing_automatic(tmp_path: Path) -> None:
    config = build(TrainConfig, completed({"data": str(recordings(tmp_path / "a")), "recipe": "paper"}), "train")
    assert (
        [note for note in config.notes if not note.startswith("modality ")] == []
        and config.time is None
        and config.sound.sample_rate == 16_000
    )


@pytest.mark.parametrize("data", ["melodies:100", "spoken:50"])
def test_built_in_sounds_keep_their_own_settings(data: str) -> None:
    found = completed({"data": data})
    assert found.get("notes", []) == [] and found["backbone"] == "audio-tiny"
