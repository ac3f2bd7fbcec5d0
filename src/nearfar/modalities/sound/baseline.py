"""What log-mels know before anything is learned."""

import torch
from torch import Tensor

from nearfar.modalities.baseline import Baseline


class LogMelStatistics(Baseline):
    """Mean and deviation of each band over time, as an encoder; single frames, too."""

    stacked = 4  # frames of the spectrogram in one of `frames`

    def __call__(self, x: Tensor) -> Tensor:
        """(B, 1, mels, T), NaN behind the end, to (B, 2 mels)."""
        there = ~x[:, 0].isnan()  # (B, mels, T)
        count = there.sum(2)
        values = torch.nan_to_num(x[:, 0], nan=0.0)
        mean = values.sum(2) / count
        deviation = (((values - mean[..., None]).square() * there).sum(2) / count).sqrt()
        return torch.cat([mean, deviation], 1)

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1, mels, T) to (B, T // 4, 4 mels), four frames side by side, and (B, T // 4): False behind the end."""
        x = x[:, 0, :, : x.shape[-1] // self.stacked * self.stacked].transpose(1, 2)  # (B, T, mels)
        x = x.reshape(len(x), -1, self.stacked * x.shape[2])
        missing = x.isnan().any(2)
        return x.masked_fill(missing[..., None], 0.0), ~missing
