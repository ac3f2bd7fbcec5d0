"""BYOL-A's encoder: frames, pooling, and ends that change nothing."""

import math

import pytest
import torch

from nearfar.modalities.sound.backbones import AUDIO, AudioEncoder, audio_encoder
from nearfar.modalities.sound.spectrogram import stretch
from tests.support.facts import facts


@pytest.mark.parametrize("name", AUDIO)
def test_encoders_by_name(name: str) -> None:
    encoder = audio_encoder(name, frames=96).eval()
    x = torch.randn(2, 1, 64, 96)
    h, present = encoder.frames(x)  # type: ignore[operator]
    assert h.shape[:2] == (2, 12) and bool(present.all())
    expected = h.mean(1) + h.amax(1)
    if AUDIO[name].get("ordered"):
        early = sum(h[:, i] * math.cos(math.pi * (i + 0.5) / 12) for i in range(12)) / 12
        expected = torch.cat([expected, early], 1)
    assert expected.shape[1] == encoder.num_features
    torch.testing.assert_close(encoder(x), expected)


def test_features_in_order_tell_a_sound_from_itself_backwards() -> None:
    torch.manual_seed(0)
    encoder = AudioEncoder(16, channels=(4, 8), features=16, ordered=True).eval()
    x = torch.randn(1, 1, 16, 32)
    h, there = encoder.frames(x)
    encoder.frames = lambda _: (h.flip(1), there)  # type: ignore[assignment, method-assign]
    backwards = encoder(x)
    del encoder.frames
    torch.testing.assert_close(backwards[:, :16], encoder(x)[:, :16])
    torch.testing.assert_close(backwards[:, 16:], -encoder(x)[:, 16:])


def test_the_papers_encoder_has_the_papers_shape() -> None:
    encoder = audio_encoder("audio-2048")
    assert [tuple(p.shape) for p in encoder.parameters() if p.ndim == 4] == [
        (64, 1, 3, 3), (64, 64, 3, 3), (64, 64, 3, 3)
    ]  # fmt: skip
    assert [tuple(p.shape) for p in encoder.parameters() if p.ndim == 2] == [(2048, 512), (2048, 2048)]


@pytest.mark.parametrize("frames", [40, 43, 8, 15])
def test_what_is_behind_the_end_changes_nothing(frames: int) -> None:
    torch.manual_seed(0)
    encoder = AudioEncoder(32, channels=(4, 8, 8), features=16, ordered=True).eval()
    for norm in encoder.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(norm.running_mean)
            torch.nn.init.normal_(norm.bias)
    x = torch.randn(1, 1, 32, frames)
    longer = torch.cat([x, torch.full((1, 1, 32, 29), torch.nan)], 3)
    batch = torch.cat([longer, torch.randn(1, 1, 32, frames + 29)])
    torch.testing.assert_close(encoder(batch)[:1], encoder(x))
    h, present = encoder.frames(batch)
    assert present.sum(1).tolist() == [frames // 8, (frames + 29) // 8]
    torch.testing.assert_close(h[0, : frames // 8], encoder.frames(x)[0][0])


def test_sounds_are_stretched_to_one_length_each_by_its_own() -> None:
    torch.manual_seed(0)
    encoder = audio_encoder("audio-quick", n_mels=16, frames=32).eval()
    x = torch.randn(2, 1, 16, 48)
    short = torch.cat([x[:1, ..., :20], torch.full((1, 1, 16, 28), torch.nan)], 3)
    expected = torch.cat([stretch(each[:, 0], torch.zeros(1), torch.tensor([n]), 32) for each, n in
                          ((x[:1, ..., :20], 20), (x[1:], 48))])[:, None]  # fmt: skip
    torch.testing.assert_close(encoder(torch.cat([short, x[1:]])), encoder(expected))
    h, _ = encoder.frames(x)  # type: ignore[operator]
    assert h.shape[1] == 6  # frames are of the sound as it is


def test_an_image_backbone_sees_a_spectrogram_as_a_picture() -> None:
    encoder = audio_encoder("micro")
    assert encoder(torch.randn(2, 1, 64, 96)).shape == (2, encoder.num_features)


def test_bad_input_is_refused_in_a_line() -> None:
    with pytest.raises(ValueError, match=facts("8")):
        AudioEncoder(4)
    with pytest.raises(ValueError, match=facts("T 8")):
        audio_encoder("audio-micro")(torch.zeros(1, 1, 64, 7))
    with pytest.raises(ValueError, match=facts("weights")):
        audio_encoder("audio-micro", pretrained=True)
