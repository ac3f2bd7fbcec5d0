"""Views of sounds: log-mels as librosa's, and each operation as a loop over samples does it."""

import math
from dataclasses import replace

import librosa
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.modalities.sound.logmel import LogMel, mel_filters
from nearfar.modalities.sound.presets import SOUND_PRESETS, byol_a, simclr, whole
from nearfar.modalities.sound.spectrogram import draw_boxes, log_mixup_exp, mask, resize_crop, stretch
from nearfar.modalities.sound.views import SoundPreparation, SoundView, jittered, make_sound_views
from nearfar.modalities.sound.wave import OVER, add_noise, change_gain, cut, floats_of
from tests.support.facts import facts

MELS = [LogMel(), LogMel(8000, 512, 80, 64, 60.0, 3900.0), LogMel(8000, 301, 125, 20, 0.0, 4000.0)]
SMALL = LogMel(8000, 256, 80, 32, 60.0, 3900.0)


def librosas(x: np.ndarray, mel: LogMel) -> np.ndarray:
    energy = librosa.feature.melspectrogram(
        y=x, sr=mel.sample_rate, n_fft=mel.window, hop_length=mel.hop, n_mels=mel.n_mels, fmin=mel.f_min, fmax=mel.f_max
    )
    return np.log(energy + mel.floor)


@pytest.mark.parametrize("mel", MELS)
def test_log_mel_is_librosas(mel: LogMel) -> None:
    x = 0.1 * np.random.default_rng(0).standard_normal((3, 5001)).astype(np.float32)
    x[1, 2000:] = 0  # silence has a logarithm, too
    found = mel(torch.from_numpy(x))
    assert found.shape == (3, mel.n_mels, mel.frames(5001))
    np.testing.assert_allclose(found, librosas(x, mel), atol=1e-4)
    np.testing.assert_allclose(mel(torch.from_numpy(x).double()), librosas(x.astype(np.float64), mel), atol=1e-6)


def test_centred_bands_have_mean_zero_over_what_is_heard() -> None:
    chance = np.random.default_rng(0)
    mel = replace(SMALL, centred=True)
    x = torch.zeros(3, 4000, dtype=torch.float64)
    for row, (begin, end) in enumerate(((0, 4000), (800, 2400), (0, 0))):
        x[row, begin:end] = torch.from_numpy(0.05 * chance.standard_normal(end - begin))
    found = mel(x).numpy()
    for row in range(3):
        plain = librosas(x[row].numpy(), SMALL)
        frames = [t for t in range(plain.shape[1]) if any(plain[:, t] > math.log(SMALL.floor) + 1e-3)]
        expected = np.zeros_like(plain)
        if frames:
            centred = plain[:, frames] - plain[:, frames].mean(1, keepdims=True)
            expected[:, frames] = centred / centred.std()
        np.testing.assert_allclose(found[row], expected, atol=1e-5)
    louder = mel(10 * x[:2]).numpy()
    np.testing.assert_allclose(louder[0], found[0], atol=0.02)  # all but the floor's small share


def test_a_centred_sound_is_the_same_beside_a_longer_one() -> None:
    mel, waves = replace(SMALL, centred=True), sounds()
    view = whole(4000, mel)[0]
    drawn = view.draw(6, torch.Generator().manual_seed(4))
    together, beside = view.apply(waves, drawn), SoundPreparation(mel.window, mel)(waves)
    for row in range(6):
        alone = waves[row : row + 1, : int((waves[row] != OVER).sum())]
        one = {
            name: x[..., row : row + 1] if name.startswith("stripe") else x[row : row + 1] for name, x in drawn.items()
        }
        torch.testing.assert_close(view.apply(alone, one), together[row : row + 1], atol=1e-4, rtol=1e-4)
        plain = SoundPreparation(mel.window, mel)(alone)
        torch.testing.assert_close(plain, beside[row : row + 1, ..., : plain.shape[-1]], atol=1e-4, rtol=1e-4)


def test_log_mel_of_a_loud_tone_is_librosas_within_a_thousandth() -> None:
    x = (0.9 * np.sin(0.3 * np.arange(16_000)))[None].astype(np.float32)
    np.testing.assert_allclose(MELS[0](torch.from_numpy(x)), librosas(x, MELS[0]), atol=1e-3)
    np.testing.assert_allclose(
        MELS[0](torch.from_numpy(x).double()), librosas(x.astype(np.float64), MELS[0]), atol=1e-6
    )


@pytest.mark.parametrize("mel", MELS)
def test_filters_are_librosas(mel: LogMel) -> None:
    expected = librosa.filters.mel(
        sr=mel.sample_rate, n_fft=mel.window, n_mels=mel.n_mels, fmin=mel.f_min, fmax=mel.f_max, dtype=np.float64
    )
    np.testing.assert_allclose(mel_filters(mel), expected, atol=1e-12)


def test_log_mel_of_a_batch_is_that_of_each() -> None:
    x = torch.randn(40, 8000)
    torch.testing.assert_close(MELS[1](x)[17], MELS[1](x[17:18])[0])


@pytest.mark.parametrize("change", [{"n_mels": 0}, {"f_min": 5000.0}, {"f_max": 9000.0}, {"floor": 0.0}])
def test_log_mel_refuses_nonsense(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        replace(MELS[1], **change)


# Waves


def test_floats_end_where_the_sound_does() -> None:
    x, lengths = floats_of(torch.tensor([[32_767, -32_767, 0], [16_384, OVER, OVER]], dtype=torch.int16))
    assert lengths.tolist() == [3, 1]
    torch.testing.assert_close(x, torch.tensor([[1.0, -1.0, 0.0], [16_384 / 32_767, 0.0, 0.0]]))
    with pytest.raises(ValueError, match=facts("int16")):
        floats_of(torch.zeros(2, 3))


def test_cut_is_a_slice_with_zeros_around() -> None:
    x = torch.randn(4, 50)
    start = torch.tensor([0, 13, -7, 45])
    found = cut(x, start, 20)
    for row, begin in enumerate(start.tolist()):
        for k in range(20):
            expected = x[row, begin + k] if 0 <= begin + k < 50 else torch.tensor(0.0)
            assert found[row, k] == expected


def test_speed_is_the_cubic_through_four_values() -> None:
    x = torch.randn(3, 60, dtype=torch.float64)
    start, speed = torch.tensor([0, 5, -3]), torch.tensor([0.9, 1.0, 1.13], dtype=torch.float64)
    found = cut(x, start, 40, speed)

    def at(row: int, k: int) -> float:
        return float(x[row, k]) if 0 <= k < 60 else 0.0

    for row in range(3):
        for k in range(40):
            place = float(start[row]) + k * float(speed[row])
            n, t = math.floor(place), place - math.floor(place)
            a, b, c, d = (at(row, n + j) for j in (-1, 0, 1, 2))
            expected = 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3)
            assert float(found[row, k]) == pytest.approx(expected, abs=1e-12)


def test_a_faster_sound_is_higher() -> None:
    x = torch.sin(2 * math.pi * 400 * torch.arange(16_000) / 8000)[None]
    found = cut(x, torch.tensor([0]), 8000, torch.tensor([1.1]))
    assert int(torch.fft.rfft(found[0]).abs().argmax()) == 440


def test_gain_and_noise_are_in_decibels() -> None:
    x, noise = torch.randn(2, 3, 400, dtype=torch.float64)
    decibels = torch.tensor([-6.0, 0.0, 20.0], dtype=torch.float64)
    louder, noisy = change_gain(x, decibels), add_noise(x, noise, decibels)
    for row in range(3):
        torch.testing.assert_close(louder[row], x[row] * 10 ** (float(decibels[row]) / 20))
        power = float(x[row].square().mean()) / 10 ** (float(decibels[row]) / 10)
        torch.testing.assert_close(noisy[row], x[row] + math.sqrt(power) * noise[row])


# Spectrograms


def test_log_mixup_exp_adds_energies() -> None:
    x, other = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    ratio = torch.tensor([0.0, 0.2, 0.39], dtype=torch.float64)
    found = log_mixup_exp(x, other, ratio)
    for row in range(3):
        expected = torch.log((1 - ratio[row]) * x[row].exp() + ratio[row] * other[row].exp())
        torch.testing.assert_close(found[row], expected)
    assert torch.equal(found[0], x[0])


def test_resize_crop_is_the_authors_canvas() -> None:
    """Zeros half as long again, the spectrogram in the middle, a box of it interpolated bicubically, corners kept."""
    x = torch.randn(6, 16, 21, dtype=torch.float64)
    boxes = draw_boxes(6, 16, 21, torch.Generator().manual_seed(0))
    found = resize_crop(x, boxes)
    assert len({tuple(box) for box in boxes.tolist()}) == 6
    for row, (top, left, height, width) in enumerate(boxes.tolist()):
        canvas = torch.zeros(16, 31, dtype=torch.float64)
        canvas[:, 5:26] = x[row]
        crop = canvas[top : top + height, left : left + width]
        assert crop.shape == (height, width)
        expected = F.interpolate(crop[None, None], (16, 21), mode="bicubic", align_corners=True)[0, 0]
        torch.testing.assert_close(found[row], expected)


def test_stretch_is_the_weighted_mean_around_each_place() -> None:
    """As loops: a triangle around the middle of each place, of the frames of the part alone."""
    x = torch.randn(5, 3, 20, dtype=torch.float64)
    begin = torch.tensor([0.0, 2.5, 0.0, 13.0, 0.0])
    extent = torch.tensor([20.0, 12.25, 3.0, 7.0, 0.7])
    found = stretch(x, begin, extent, 8)
    assert found.shape == (5, 3, 8)
    for row, (first, length) in enumerate(zip(begin.tolist(), extent.tolist(), strict=True)):
        step = length / 8
        for place in range(8):
            middle = min(max(first + (place + 0.5) * step - 0.5, first), first + length - 1)
            weights = [max(0.0, 1 - abs(t - middle) / max(step, 1.0)) if t < first + length else 0.0 for t in range(20)]
            expected = sum(w * x[row, :, t] for t, w in enumerate(weights)) / sum(weights)
            torch.testing.assert_close(found[row, :, place], expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(stretch(x, torch.zeros(5), torch.full((5,), 20.0), 20), x)


def test_boxes_are_on_the_canvas() -> None:
    top, left, height, width = draw_boxes(5000, 64, 96, torch.Generator().manual_seed(1)).unbind(1)
    assert int(height.min()) == 38 and int(height.max()) == 64 and int((top + height).max()) == 64
    assert int(width.min()) == 57 and int(width.max()) in (142, 143) and int((left + width).max()) == 144
    assert int(top.min()) == 0 and int(left.min()) == 0


@pytest.mark.parametrize("dim", [1, 2])
def test_mask_is_a_stripe(dim: int) -> None:
    x = torch.randn(3, 6, 8)
    begin, extent = torch.tensor([0, 2, 5]), torch.tensor([0, 3, 1])
    found = mask(x, begin, extent, dim=dim, value=-1.0)
    for row in range(3):
        for m in range(6):
            for t in range(8):
                place = m if dim == 1 else t
                inside = begin[row] <= place < begin[row] + extent[row]
                assert found[row, m, t] == (-1.0 if inside else x[row, m, t])


# Views


def sounds(count: int = 6) -> Tensor:
    """Of unequal length, some shorter and some longer than a view."""
    generator = torch.Generator().manual_seed(0)
    waves = torch.full((count, 6000), OVER, dtype=torch.int16)
    for row in range(count):
        length = 1500 + 900 * row
        values = torch.randn(length, generator=generator).mul(3000).clamp(-32_767, 32_767)
        waves[row, :length] = values.to(torch.int16)
    return waves


@pytest.mark.parametrize("preset", SOUND_PRESETS)
def test_seed_and_step_give_the_same_views(preset: str) -> None:
    views = SOUND_PRESETS[preset](4000, SMALL)
    first, again, other = (make_sound_views(sounds(), views, seed=1, step=step) for step in (2, 2, 3))
    for a, b, c in zip(first, again, other, strict=True):
        a, b, c = (x.nan_to_num(9.0) for x in (a, b, c))
        assert torch.equal(a, b) and not torch.equal(a, c)
        assert a.shape == ((6, 1, 4000) if preset == "cpc" else (6, 1, 32, 51)) and bool(a.isfinite().all())
    if len(first) == 2:
        assert not torch.equal(*first)


def test_a_view_is_its_operations_in_order() -> None:
    """simclr's view of each sound, put together from the operations, one sound at a time."""
    view, waves = simclr(4000, SMALL, mean=-5.0, std=2.0)[0], sounds()
    drawn = view.draw(6, torch.Generator().manual_seed(4))
    found = view.apply(waves, drawn)
    for row in range(6):
        x, lengths = floats_of(waves[row : row + 1])
        one = {name: values[..., row : row + 1] if name.startswith("stripe") else values[row : row + 1]
               for name, values in drawn.items()}  # fmt: skip
        speed = float(one["speed"])
        free = float(lengths) / speed - 4000
        start = int(int(float(one["place"]) * (abs(free) + 1)) * (1 if free > 0 else -1) * speed)
        x = cut(x, torch.tensor([start]), 4000, one["speed"])
        x = change_gain(x, one["gain"])
        if bool(one["noisy"]):
            x = add_noise(x, one["white"], one["noise"])
        y = resize_crop((SMALL(x) + 5.0) / 2.0, one["boxes"])
        for number, (dim, most) in enumerate(((1, view.bands), (2, view.frames))):
            extent = int(float(one["stripes"][number]) * (most + 1))
            begin = int(float(one["stripe places"][number]) * (y.shape[dim] - extent + 1))
            y = mask(y, torch.tensor([begin]), torch.tensor([extent]), dim=dim)
        torch.testing.assert_close(found[row : row + 1], y[:, None], atol=1e-5, rtol=1e-4)


def test_a_view_of_the_whole_is_a_part_stretched() -> None:
    view, waves = whole(4000, SMALL, mean=-5.0, std=2.0)[0], sounds()
    drawn = view.draw(6, torch.Generator().manual_seed(4))
    assert bool(drawn["noisy"].any()) and not bool(drawn["noisy"].all())
    found = view.apply(waves, drawn)
    for row in range(6):
        one = waves[row][waves[row] != OVER].double() / 32_767
        if bool(drawn["noisy"][row]):
            power = one.square().mean() / 10 ** (drawn["noise"][row] / 10)
            one = one + drawn["white"][row].repeat(2)[: len(one)] * power.sqrt()
        y = (torch.from_numpy(librosas(one.numpy(), SMALL))[None] + 5.0) / 2.0
        extent = drawn["part"][row] * y.shape[2]
        y = stretch(y, (drawn["place"][row] * (y.shape[2] - extent))[None], extent[None], 51)
        for number, (dim, most) in enumerate(((1, view.bands), (2, view.frames))):
            size = int(float(drawn["stripes"][number, row]) * (most + 1))
            begin = int(float(drawn["stripe places"][number, row]) * (y.shape[dim] - size + 1))
            y = mask(y, torch.tensor([begin]), torch.tensor([size]), dim=dim)
        torch.testing.assert_close(found[row, 0].double(), y[0], atol=2e-3, rtol=1e-3)


def test_byol_a_mixes_another_sound_in_and_renormalizes() -> None:
    view, waves = byol_a(4000, SMALL)[0], sounds()
    drawn = view.draw(6, torch.Generator().manual_seed(4))
    assert (drawn["other"] != torch.arange(6)).all() and float(drawn["ratio"].max()) < 0.4
    found = view.apply(waves, drawn)
    assert abs(float(found.mean())) < 1e-5 and float(found.std()) == pytest.approx(1, abs=1e-3)
    plain = replace(view, mixup=0.0, resize=None, renormalize=False).apply(waves, drawn)[:, 0]
    mixed = torch.stack(
        [
            torch.log((1 - drawn["ratio"][i]) * plain[i].exp() + drawn["ratio"][i] * plain[drawn["other"][i]].exp())
            for i in range(6)
        ]
    )
    y = resize_crop(mixed.float(), drawn["boxes"])
    torch.testing.assert_close(found[:, 0], (y - y.mean()) / (y.std() + 1e-5), atol=1e-4, rtol=1e-4)


def test_byol_as_views_are_normalized_together() -> None:
    """As by the authors, who normalize both views of a batch as one."""
    views = byol_a(4000, SMALL)
    plain = [replace(view, renormalize=False) for view in views]
    first, second = make_sound_views(sounds(), plain, seed=1, step=2)
    both = torch.cat([first, second]).double()
    expected = [(x - both.mean()) / (both.std() + 1e-5) for x in (first, second)]
    for found, one in zip(make_sound_views(sounds(), views, seed=1, step=2), expected, strict=True):
        torch.testing.assert_close(found, one.float(), atol=1e-5, rtol=1e-5)


def test_others_are_drawn_evenly() -> None:
    view = byol_a(4000, SMALL)[0]
    others = torch.stack([view.draw(5, torch.Generator().manual_seed(s))["other"] for s in range(2000)])  # (2000, 5)
    for row in range(5):
        counts = others[:, row].bincount(minlength=5)
        assert counts[row] == 0 and int(counts[counts > 0].min()) > 400


def test_the_preparation_pads_the_short_and_keeps_the_long() -> None:
    waves, prepare = sounds(), SoundPreparation(4000, SMALL, mean=-5.0, std=2.0)
    found = prepare(waves)
    assert found.shape == (6, 1, 32, 1 + 6000 // 80)
    for row in range(6):
        alone = prepare(waves[row : row + 1, : 1500 + 900 * row])
        frames = alone.shape[-1]
        assert frames == 1 + max(4000, 1500 + 900 * row) // 80
        torch.testing.assert_close(found[row : row + 1, ..., :frames], alone, atol=1e-4, rtol=1e-4)
        assert bool(found[row, ..., frames:].isnan().all()) and bool(alone.isfinite().all())
    cut_off = replace(prepare, whole=False)(waves)
    assert cut_off.shape == (6, 1, 32, 51) and bool(cut_off.isfinite().all())
    as_waves = SoundPreparation(4000)(waves)
    assert as_waves.shape == (6, 1, 6000) and as_waves.isnan().sum(2).flatten().tolist() == [2000] * 3 + [1800, 900, 0]


def test_where_sounds_end_in_the_view_nothing_is_put_around_them() -> None:
    waves, view = sounds(), SoundView(4000, ends=True)
    drawn = view.draw(6, torch.Generator().manual_seed(0))
    found = view.apply(waves, drawn)[:, 0]
    for row in range(6):
        values, length = floats_of(waves[row : row + 1])[0][0], 1500 + 900 * row
        if length <= 4000:
            torch.testing.assert_close(found[row, :length], values[:length])
            assert bool(found[row, length:].isnan().all())
        else:
            start = int(drawn["place"][row] * (length - 4000 + 1))
            torch.testing.assert_close(found[row], values[start : start + 4000])
    faster = replace(view, speed=(1.25, 1.25))
    ends = (~faster.apply(waves, faster.draw(6, torch.Generator()))[:, 0].isnan()).sum(1)
    assert ends.tolist() == [1200, 1920, 2640, 3360, 4000, 4000]


def test_jittered_sounds_are_later_and_louder() -> None:
    waves = sounds()
    found = jittered(waves, torch.Generator().manual_seed(0), lead=100)
    assert found.dtype == torch.int16 and found.shape == (6, 6100)
    for row in range(6):
        length = 1500 + 900 * row
        values = found[row][found[row] != OVER].float()
        later = len(values) - length
        assert 0 <= later <= 100 and not values[:later].any()
        gain = values[later:] / waves[row, :length].float().clamp(min=1)
        loud = waves[row, :length] > 1000
        assert float(gain[loud].std()) < 0.01 and 0.5 < float(gain[loud].mean()) < 2


@pytest.mark.parametrize(
    "change",
    [
        {"values": 0},
        {"speed": (0.0, 1.0)},
        {"mixup": 1.0},
        {"gain": (1.0, 0.0)},
        {"mel": None, "bands": 2},
        {"ends": True},
        {"heights": (0.9, 1.0)},
    ],
)
def test_views_refuse_nonsense(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        replace(SoundView(4000, SMALL), **change)
