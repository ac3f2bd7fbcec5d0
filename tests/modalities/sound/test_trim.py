"""Quiet ends cut off, and a range of loudness below each sound's loudest: against loops over blocks and librosa."""

import math
from dataclasses import replace

import librosa
import numpy as np
import pytest
import torch
from torch import Tensor

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.modalities.sound.config import SoundConfig
from nearfar.modalities.sound.logmel import LogMel
from nearfar.modalities.sound.modality import SoundModality
from nearfar.modalities.sound.presets import whole
from nearfar.modalities.sound.views import SoundPreparation
from nearfar.modalities.sound.wave import OVER, Trim
from tests.support.facts import facts

TRIM = Trim(20.0, 80)
MEL = LogMel(8000, 200, 80, 40, 60.0, 3900.0)


def word(lead: int, extent: int, behind: int, *, noise: float = 0.0, loud: float = 0.5, seed: int = 0) -> Tensor:
    """int16: a tone of so many values that swells and fades, with noise or silence around it."""
    rng = np.random.default_rng(seed)
    x = np.zeros(lead + extent + behind)
    x[lead : lead + extent] = loud * np.sin(np.arange(extent) / 3) * np.hanning(extent) ** 0.2
    x += noise * rng.standard_normal(len(x))
    return torch.from_numpy((x.clip(-1, 1) * 32_767).round().astype(np.int16))


def batch(waves: list[Tensor]) -> Tensor:
    longest = max(map(len, waves))
    return torch.stack([torch.nn.functional.pad(wave, (0, longest - len(wave)), value=OVER) for wave in waves])


def looped(wave: Tensor, trim: Trim) -> tuple[int, int]:
    """The definition, block by block."""
    x = wave.numpy().astype(np.float64)
    x -= x.mean()
    blocks = [x[start : start + trim.block] for start in range(0, len(x), trim.block)]
    power = []
    for number in range(len(blocks)):
        near = np.concatenate(blocks[max(0, number - 1) : number + 2])
        power.append(10 * math.log10(max(np.square(near).mean(), 1e-3)))
    level = max(max(power) - trim.decibels, min(power) + trim.above)
    level = min(level, max(power) - trim.above)
    loud = [number for number, value in enumerate(power) if value > level]
    return loud[0] * trim.block, min((loud[-1] + 1) * trim.block, len(x))


def test_bounds_are_those_of_a_loop_over_blocks() -> None:
    waves = [
        word(900, 2000, 1500, noise=0.002),
        word(0, 1234, 0),
        word(4000, 400, 55, noise=0.05, seed=1),  # hardly above the noise
        word(100, 3000, 3000, noise=0.3, seed=2),  # below it
        word(0, 0, 700),  # silence
        word(5, 60, 0),  # less than a block
    ]
    begin, end = TRIM.bounds(batch(waves))
    for row, wave in enumerate(waves):
        expected = (0, len(wave)) if not wave.any() else looped(wave, TRIM)
        assert (int(begin[row]), int(end[row])) == expected, row
    assert 900 - 160 <= int(begin[0]) <= 900 and 2900 <= int(end[0]) <= 2900 + 160
    trimmed = TRIM(batch(waves))
    for row, wave in enumerate(waves):
        heard = trimmed[row][trimmed[row] != OVER]
        assert torch.equal(heard, wave[int(begin[row]) : int(end[row])])
        assert bool((trimmed[row, len(heard) :] == OVER).all())


def test_a_sound_is_trimmed_alike_whatever_its_loudness_and_whatever_is_beside_it() -> None:
    soft, hard = (word(900, 2000, 1500, noise=0.004 * g, loud=0.5 * g) for g in (0.1, 1.0))
    alone = [TRIM.bounds(wave[None]) for wave in (soft, hard)]
    beside = TRIM.bounds(batch([soft, hard, word(0, 9000, 0)]))
    for row, (begin, end) in enumerate(alone):
        assert (int(begin), int(end)) == (int(beside[0][row]), int(beside[1][row]))
    assert [int(x) for x in alone[0]] == [int(x) for x in alone[1]]


def test_a_range_is_heard_below_the_loudest_of_each_sound() -> None:
    mel = replace(MEL, centred=True, range_db=40.0)
    x = torch.from_numpy(0.1 * np.random.default_rng(0).standard_normal(4000))
    x[2000:] *= 1e-4  # 80 dB softer
    x = torch.stack([x, 0.1 * x])
    found = mel(x, torch.tensor([4000, 4000]))
    energy = librosa.feature.melspectrogram(
        y=x[0].numpy(), sr=8000, n_fft=200, hop_length=80, n_mels=40, fmin=60.0, fmax=3900.0
    )
    plain = np.log(energy + energy.max() * 1e-4)
    plain -= plain.mean(1, keepdims=True)
    np.testing.assert_allclose(found[0], plain / plain.std(), atol=1e-5)
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=0)  # loudness is not heard
    without = replace(mel, range_db=None)(x, torch.tensor([4000, 4000]))
    assert (without[1] - without[0]).abs().max() > 0.1  # with a fixed floor it is
    assert mel(torch.zeros(1, 800), torch.tensor([800])).abs().max() == 0
    for nonsense in ({"range_db": -1.0}, {"centred": False}):
        with pytest.raises(ValueError, match=facts("range_db centred")):
            replace(mel, **nonsense)


def test_views_and_preparation_do_not_hear_what_is_around_a_word() -> None:
    mel = replace(MEL, centred=True)
    close, far = word(0, 2400, 0), word(800, 2400, 1600)
    view = replace(whole(2400, mel)[0], noisy=0.0, parts=(1.0, 1.0), trim=TRIM)
    prepare = SoundPreparation(200, mel, trim=TRIM)
    drawn = view.draw(1, torch.Generator().manual_seed(0))
    torch.testing.assert_close(prepare(far[None]), replace(prepare, trim=None)(TRIM(far[None])))
    torch.testing.assert_close(view.apply(far[None], drawn), replace(view, trim=None).apply(TRIM(far[None]), drawn))
    assert abs(prepare(far[None]).shape[-1] - prepare(close[None]).shape[-1]) <= 6  # of 60
    assert "20 dB" in prepare.words() and "80 values" in prepare.words()


def test_a_run_reads_trains_and_describes_its_sounds_trimmed() -> None:
    sound = SoundConfig(sample_rate=8000, normalize="sound", trim_db=20.0, range_db=45.0, n_mels=40, crop_seconds=0.64)
    modality = SoundModality(TrainConfig(data=DataConfig(path="melodies:20"), backbone="audio-quick", sound=sound))
    assert modality.trim == TRIM and modality.mel.range_db == 45
    assert all(recipe.trim == TRIM for recipe in modality.recipes)
    far = word(800, 2400, 1600)[None]
    for prepare in (modality.prepare, modality.raw_prepare):  # the baselines hear the same
        assert prepare(far).shape[-1] == modality.mel.frames(int((TRIM(far) != OVER).sum()))
    assert "20 dB" in modality.card()["preprocessing"]
    with pytest.raises(ValueError, match=facts("range_db normalize 'data'")):
        replace(sound, normalize="data")
