"""MFCC as librosa has them, and a baseline that tells words apart."""

import numpy as np
import pytest
import torch

from nearfar.modalities.sound.mfcc import COEFFICIENTS, FRAMES, MfccSequence, cepstrum, slopes


def log_mels(frames: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(64, frames, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("count", [13, 20])
def test_the_coefficients_are_librosas(count: int) -> None:
    librosa = pytest.importorskip("librosa")
    x = log_mels(50)
    expected = librosa.feature.mfcc(S=x.numpy(), n_mfcc=count)
    np.testing.assert_allclose(cepstrum(x, count).numpy(), expected, atol=1e-10)


def test_the_slopes_are_librosas() -> None:
    librosa = pytest.importorskip("librosa")
    x = log_mels(50)
    np.testing.assert_allclose(slopes(x).numpy(), librosa.feature.delta(x.numpy(), mode="nearest"), atol=1e-10)


def test_microphone_and_loudness_are_not_heard_and_the_end_is() -> None:
    """A constant on the log-mels is another gain or filter; NaN are behind the end."""
    x = log_mels(60).float()
    filtered = x + torch.randn(64, 1, generator=torch.Generator().manual_seed(3))
    followed = torch.cat([x, torch.full((64, 20), torch.nan)], 1)
    both = torch.stack([x, filtered])[:, None]
    plain, other = MfccSequence()(both)
    assert plain.shape == (2 * COEFFICIENTS * FRAMES,)
    torch.testing.assert_close(plain, other, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(MfccSequence()(followed[None, None])[0], plain)
    assert bool(MfccSequence()(torch.full((1, 1, 64, 5), torch.nan)).isfinite().all())


def test_the_order_in_time_counts() -> None:
    """Backwards, mean and deviation over time are the same, and the word is another."""
    rise = torch.linspace(-1, 1, 40)[None, :] * torch.linspace(-2, 2, 64)[:, None]
    forwards, backwards = MfccSequence()(torch.stack([rise, rise.flip(1)])[:, None])
    assert torch.cosine_similarity(forwards, backwards, dim=0) < 0
