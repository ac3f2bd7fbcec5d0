"""Sounds with captions: a table, a built-in set, and a run from training to search by words."""

import csv
from pathlib import Path

import pytest
import soundfile
import torch
from rich.console import Console

import nearfar
from nearfar.config import TrainConfig, build, completed, kind_of
from nearfar.modalities import make_modality
from nearfar.modalities.captioned import CaptionedSamples
from nearfar.modalities.sound.melodies import melodies
from nearfar.modalities.sound.modality import SoundModality
from nearfar.modalities.sound_text.modality import SoundTextModality
from nearfar.nn.towers import TwoTowers
from nearfar.training.run import Run
from tests.support.facts import facts
from tests.support.sounds import tone

RATE = 8000
SMALL = {"backbone": "audio-quick", "text": {"encoder": "text-bag", "embed_dim": 16, "vocab_size": 300}}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Twelve sounds, the first with two captions, and two that say the same."""
    path = tmp_path / "sounds.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "caption"])
        for i in range(12):
            soundfile.write(tmp_path / f"{i}.wav", tone(200 + 60 * i, 0.5, RATE), RATE)
            rows.writerow([f"{i}.wav", f"tone number {min(i, 10)}"])
        rows.writerow(["0.wav", "the lowest of all"])
    return path


def config_of(data: object, **more: object) -> TrainConfig:
    made: TrainConfig = build(TrainConfig, completed({"data": str(data), "method": "clap", **SMALL, **more}), "train")
    return made


def test_the_method_and_the_data_name_the_kind() -> None:
    assert kind_of("sounds.csv", "clap", None) == kind_of("melodies:40", "clap", None) == "sound-text"
    assert kind_of("melodies:40", "clip", None) == "sound-text" and kind_of("melodies:40", "moco", None) == "sound"
    assert kind_of("pairs.csv", "clip", None) == "image-text"


def test_a_table_of_sounds_has_captions_for_those_who_ask(table: Path) -> None:
    modality = make_modality(config_of(table))
    assert isinstance(modality, SoundTextModality)
    data = modality.open(str(table))
    assert isinstance(data, CaptionedSamples) and len(data) == 12
    assert data.captions[0] == ("tone number 0", "the lowest of all")
    ids = modality.ids(data)
    assert ids[10] == ids[11] and len(ids.unique()) == 11  # who says the same is no negative
    alone = SoundModality(build(TrainConfig, completed({"data": str(table), "modality": "sound"}), "train"))
    assert alone.open(str(table)).captions is None and len(alone.open(str(table))) == 12


def test_views_are_a_sound_and_the_tokens_of_a_caption(table: Path) -> None:
    modality = make_modality(config_of(table))
    data = modality.open(str(table))
    modality.fit(data)
    index = torch.tensor([0, 3])
    views = modality.views(data.fetch(index), data, index, seed=0, step=0)
    again = modality.views(data.fetch(index), data, index, seed=0, step=0)
    assert len(views) == 2 and views[0].ndim == 4 and views[1].shape[0] == 2 and views[1].dtype == torch.long
    assert all(torch.equal(a, b) for a, b in zip(views, again, strict=True))
    assert isinstance(modality.encoder(), TwoTowers)


def test_melodies_say_tempo_register_and_contour() -> None:
    data = melodies(60)
    assert data.captions is not None and data.classes is not None and data.labels is not None
    for (caption,), label in zip(data.captions, data.labels.tolist(), strict=True):
        assert caption.endswith(f": {data.classes[label]}")
    assert len({caption.split(":")[0] for (caption,) in data.captions}) == 9


def test_a_run_encodes_sounds_and_words(table: Path, tmp_path: Path) -> None:
    config = config_of(table, steps=6, batch_size=6)
    Run(config, tmp_path / "run", resume=False, console=Console(quiet=True)).execute()
    encoder = nearfar.load(tmp_path / "run")
    sounds = encoder.encode([str(table.parent / "0.wav"), str(table.parent / "5.wav")])
    texts = encoder.encode(["the lowest of all", "tone number 5"])
    assert sounds.shape == texts.shape == (2, 16)
    results = nearfar.evaluate(tmp_path / "run", str(table), test=str(table), protocols=["captions"])
    assert {row.encoder for row in results.rows} >= {"trained", "untrained"}


def test_sounds_without_captions_are_refused(table: Path) -> None:
    bare = table.parent / "bare.csv"
    bare.write_text("path\n" + "".join(f"{i}.wav\n" for i in range(12)))
    modality = make_modality(config_of(bare))
    with pytest.raises(ValueError, match=facts("bare.csv clap path caption")):
        modality.for_training(modality.open(str(bare)))
