"""Sounds: files of every kind at one rate, what is broken left out, packed once, labels from anywhere."""

import builtins
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from scipy.signal import resample_poly

from nearfar.data.fingerprint import fingerprint
from nearfar.modalities.sound import wave
from nearfar.modalities.sound.data import OVER, SoundSource, are_sounds, open_sounds
from nearfar.modalities.sound.files import decode_sound
from nearfar.modalities.sound.melodies import CLASSES, melodies
from nearfar.modalities.sound.resample import resample
from tests.support.facts import all_tell, facts, tells
from tests.support.sounds import RATE, recordings, tone


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def opened(spec: Path, cache: Path, **settings: Any) -> Any:
    return open_sounds(spec, **{"sample_rate": RATE, "cache": cache, "progress": False, **settings})


@pytest.mark.parametrize(
    "rates", [(44_100, 16_000), (8000, 16_000), (48_000, 16_000), (11_025, 8000), (22_050, 16_000), (44_101, 16_000)]
)
def test_resampling_is_scipys(rates: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(3001).astype(np.float32)
    divisor = np.gcd(*rates)
    expected = resample_poly(x.astype(np.float64), rates[1] // divisor, rates[0] // divisor)
    found = resample(x, *rates)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_tone_keeps_its_pitch_when_resampled() -> None:
    y = resample(tone(440, 1.0, 44_100), 44_100, 16_000)
    assert int(np.abs(np.fft.rfft(y)).argmax()) == 440
    np.testing.assert_allclose(y[200:-200], tone(440, 1.0, 16_000)[200:-200], atol=2e-3)


@pytest.mark.parametrize("kind", ["wav", "flac", "ogg", "mp3"])
def test_every_kind_of_file_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"tone.{kind}"
    soundfile.write(path, tone(440, 0.5, 16_000), 16_000)
    values = decode_sound(path, RATE).values
    assert values.dtype == np.int16 and abs(len(values) - 4000) < 700  # mp3 adds some at both ends
    assert int(np.abs(np.fft.rfft(values / 32_767, RATE)).argmax()) == pytest.approx(440, abs=3)


def test_channels_are_mixed(tmp_path: Path) -> None:
    left, right = tone(300), tone(500)
    soundfile.write(tmp_path / "two.wav", np.stack([left, right], 1), RATE, subtype="FLOAT")
    found = decode_sound(tmp_path / "two.wav", RATE).values / 32_767
    np.testing.assert_allclose(found, (left + right) / 2, atol=2e-5)


def spoil(folder: Path) -> dict[str, str]:
    """Files that are of no use, by what is said of them."""
    soundfile.write(folder / "silent.wav", np.zeros(800, np.float32), RATE)
    soundfile.write(folder / "nan.wav", np.array([0.1, np.nan] * 400, np.float32), RATE, subtype="FLOAT")
    soundfile.write(folder / "nothing.wav", np.zeros(0, np.float32), RATE)
    (folder / "empty.wav").write_bytes(b"")
    (folder / "text.mp3").write_text("not a sound at all")
    soundfile.write(folder / "whole.wav", tone(400), RATE)
    (folder / "cut.wav").write_bytes((folder / "whole.wav").read_bytes()[:-1000])
    soundfile.write(folder / "whole.flac", tone(400, 3.0), RATE)
    (folder / "cut.flac").write_bytes((folder / "whole.flac").read_bytes()[:4000])
    return {
        "cut.flac": "",  # in libsndfile's words
        "cut.wav": "cut",
        "empty.wav": "empty",
        "nan.wav": "finite",
        "nothing.wav": "length 0",
        "silent.wav": "silent",
        "text.mp3": "sound",
    }


def test_what_is_broken_is_left_out_and_listed(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "sounds"
    folder.mkdir()
    reasons = spoil(folder)
    for _ in range(2):  # the second time from the cache
        data = opened(folder, cache)
        assert data.names == ["whole.flac", "whole.wav"]
        assert [skip.path for skip in data.skipped] == sorted(reasons)
        for skip in data.skipped:
            assert tells(skip.reason, reasons[skip.path]) and "\n" not in skip.reason
    with pytest.raises(ValueError, match=facts("cut.flac")):
        opened(folder, cache, strict=True)


def test_a_sound_that_is_clipped_is_kept_and_named(tmp_path: Path, cache: Path) -> None:
    folder = recordings(tmp_path / "sounds", words=1, speakers=1, takes=1)
    soundfile.write(folder / "loud.wav", np.clip(tone(200, loud=3.0), -1, 1), 16_000)
    for _ in range(2):
        data = opened(folder, cache)
        assert data.clipped == ["loud.wav"] and len(data) == 2 and not data.skipped
    assert data.subset(torch.tensor([0])).clipped == []


def test_sounds_of_unequal_length_are_one_tensor(tmp_path: Path, cache: Path) -> None:
    data = opened(recordings(tmp_path / "sounds"), cache)
    batch = data.fetch(torch.tensor([0, 8]))
    assert batch.dtype == torch.int16 and batch.shape == (2, 3200)  # 0.3 and 0.4 s
    assert (batch[0] == OVER).tolist() == [False] * 2400 + [True] * 800 and not (batch[1] == OVER).any()
    read, _ = soundfile.read(tmp_path / "sounds" / data.names[0], dtype="float32")
    np.testing.assert_allclose(batch[0, :2400] / 32_767, read, atol=1e-4)
    assert opened(tmp_path / "sounds", cache, max_seconds=0.1).fetch(torch.tensor([0])).shape == (1, 800)
    assert OVER == wave.OVER


def test_files_are_read_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, reads = recordings(tmp_path / "sounds", takes=1), []
    plain = SoundSource.read
    monkeypatch.setattr(SoundSource, "read", lambda self, i, rate: reads.append(i) or plain(self, i, rate))
    first = opened(folder, cache)
    assert len(reads) == 9
    again = opened(folder, cache)
    assert len(reads) == 9 and torch.equal(first.fetch(torch.arange(9)), again.fetch(torch.arange(9)))
    assert fingerprint(first) == fingerprint(again)
    soundfile.write(folder / "0_ann_0.wav", tone(900, 0.2), RATE)
    changed = opened(folder, cache)
    assert len(reads) == 10 and fingerprint(changed) != fingerprint(first)  # the others come from the pack before
    assert torch.equal(first.fetch(torch.arange(1, 9)), changed.fetch(torch.arange(1, 9)))
    opened(folder, cache, sample_rate=4000)
    assert len(reads) == 19


@pytest.mark.parametrize("damage", ["values", "cut", "journal", "gone"])
def test_a_damaged_cache_is_found_and_mended(tmp_path: Path, cache: Path, damage: str) -> None:
    folder = recordings(tmp_path / "sounds", takes=1)
    expected = opened(folder, cache).fetch(torch.arange(9))
    (store,) = cache.glob("packs/*/*/sounds.i16")
    content = bytearray(store.read_bytes())
    if damage == "values":
        content[100] ^= 255
        store.write_bytes(content)
    elif damage == "cut":
        store.write_bytes(content[:-100])
    elif damage == "journal":
        (store.parent / "rows.npy").write_bytes(b"nonsense")
    else:
        store.unlink()
    assert torch.equal(opened(folder, cache).fetch(torch.arange(9)), expected)


def test_labels_and_speakers_from_the_names(tmp_path: Path, cache: Path) -> None:
    folder = recordings(tmp_path / "sounds")
    soundfile.write(folder / "noise.wav", tone(100), RATE)
    pattern = "{label}_{speaker}_{take}.wav"
    data = opened(folder, cache, pattern=pattern, group_column="speaker")
    assert data.classes == ["0", "1", "2"] and data.labels.bincount().tolist() == [12, 12, 12]
    assert data.groups.unique().tolist() == [0, 1, 2]
    assert [(skip.path, "pattern" in skip.reason) for skip in data.skipped] == [("noise.wav", True)]
    held = opened(folder, cache, pattern=pattern, split="speaker=ann,bob")
    kept = opened(folder, cache, pattern=pattern, split="speaker!=ann,bob")
    assert len(held) == 24 and len(kept) == 12 and all("cem" in name for name in kept.names)
    assert kept.classes == held.classes
    with pytest.raises(ValueError, match=facts("speaker 'anne' 'ann' 'bob' 'cem'")):
        opened(folder, cache, pattern=pattern, split="speaker=anne")
    with pytest.raises(ValueError, match=facts("braces")):
        opened(folder, cache, pattern="no names")
    with pytest.raises(ValueError, match=facts("pattern")):
        opened(folder, cache, pattern="{label}-{speaker}")


def test_labels_from_sub_folders_and_tables(tmp_path: Path, cache: Path) -> None:
    for word in ("yes", "no"):
        recordings(tmp_path / "words" / word, words=1, speakers=1, takes=2)
    data = opened(tmp_path / "words", cache, labels=True)
    assert data.classes == ["no", "yes"] and data.labels.tolist() == [0, 0, 1, 1]
    lines = ["path,label,speaker"] + [f"{name},{name.split('/')[0]},{i % 2}" for i, name in enumerate(data.names)]
    table = tmp_path / "words" / "table.csv"
    table.write_text("\n".join([*lines, "lost.wav,no,1"]))
    found = opened(table, cache, split="speaker=1")
    assert found.labels.tolist() == [0, 1] and all_tell((skip.reason for skip in found.skipped), ["not found"])
    by_name = opened(f"{table}:speaker!=1", cache)
    assert by_name.labels.tolist() == [0, 1] and set(by_name.names).isdisjoint(found.names)
    assert are_sounds(f"{table}:speaker=0")


def test_what_looks_like_sounds(tmp_path: Path) -> None:
    folder = recordings(tmp_path / "sounds", words=1, speakers=1, takes=1)
    (tmp_path / "t.csv").write_text("path,label\nsounds/0_ann_0.wav,1\n")
    (tmp_path / "p.csv").write_text("path,label\nphotos/0.jpg,1\n")
    assert are_sounds(folder) and are_sounds(tmp_path / "t.csv") and are_sounds("melodies")
    assert not are_sounds(tmp_path / "p.csv") and not are_sounds("glyphs")


def test_without_soundfile_a_line_says_what_to_install(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recordings(tmp_path / "sounds", words=1, speakers=1, takes=1)
    plain = builtins.__import__

    def absent(name: str, *arguments: Any) -> Any:
        if name == "soundfile":
            raise ImportError(name)
        return plain(name, *arguments)

    monkeypatch.delitem(sys.modules, "soundfile")
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ModuleNotFoundError, match=facts("'nearfar[audio]'")):
        opened(folder, cache)


def test_bad_specs_are_refused_in_a_line(tmp_path: Path, cache: Path) -> None:
    recordings(tmp_path / "sounds", words=1, speakers=1, takes=1)
    for spec, words in (
        (tmp_path / "sounds" / "0_ann_0.wav", "sound"),
        (tmp_path / "absent", "folder"),
        (tmp_path, "sound"),
    ):
        (tmp_path / "sounds").rename(tmp_path / ".hidden") if spec == tmp_path else None
        with pytest.raises((ValueError, FileNotFoundError), match=facts(words)) as error:
            opened(spec, cache)
        assert "\n" not in str(error.value)


def test_melodies_depend_on_seed_split_and_number_alone() -> None:
    few, many, other, test = melodies(5), melodies(9), melodies(5, seed=1), melodies(5, split="test")
    assert torch.equal(few.fetch(torch.arange(5)), many.fetch(torch.arange(5)))
    assert few.labels is not None and many.labels is not None and torch.equal(few.labels, many.labels[:5])
    for another in (other, test):
        assert not np.array_equal(few.lengths, another.lengths)
    assert len(CLASSES) == 10 and all(sorted(name) == list("1234") for name in CLASSES)


def test_melodies_are_kept_in_the_cache(cache: Path) -> None:
    a, b = (melodies(3, cache=cache).fetch(torch.arange(3)) for _ in range(2))
    assert torch.equal(a, b) and (cache / "melodies").is_dir()


def test_spoken_words_depend_on_the_seed_alone(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader")
    first, again = (open_sounds("spoken:20", sample_rate=RATE, cache=tmp_path / name) for name in "ab")
    assert len(first) == 20 and first.classes is not None and len(first.classes) == 20
    assert torch.equal(first.fetch(torch.arange(20)), again.fetch(torch.arange(20)))
    assert first.lengths.min() / RATE > 0.1 and first.lengths.max() / RATE < 1.5
    test = open_sounds("spoken:20", sample_rate=RATE, split="test", cache=tmp_path / "a")
    assert len(test) == 4 and not np.array_equal(test.lengths, first.lengths[:4])


def test_without_espeak_a_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=facts("GPL-3 'nearfar[spoken]'")):
        open_sounds("spoken:20", sample_rate=RATE, cache=tmp_path)


def test_a_melody_has_the_contour_of_its_class() -> None:
    """The strongest pitch of each note, found from the values, rises and falls as the name of the class says."""
    data = melodies(40, seed=3)
    from nearfar.modalities.sound.melodies import planned

    right = 0
    for i in range(40):
        plan = planned(np.random.default_rng((3, False, i)), "train")
        x = data.fetch(torch.tensor([i]))[0].numpy().astype(np.float64)
        notes = [x[plan.before + k * plan.note :][: plan.note] for k in range(4)]
        pitches = [  # of the four that the key allows
            max(range(4), key=lambda n: abs(np.exp(-2j * np.pi * plan.key * 2 ** ((0, 4, 7, 12)[n] / 12)
                                                   * np.arange(len(y)) / RATE) @ y))
            for y in notes
        ]  # fmt: skip
        right += "".join(str(p + 1) for p in pitches) == CLASSES[plan.contour]
    assert right >= 36  # an octave above the lowest note is also its second harmonic
