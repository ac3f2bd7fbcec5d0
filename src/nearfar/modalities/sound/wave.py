"""What is done to sounds before they become spectrograms: whole batches, each sound by its own numbers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

OVER = -32_768  # of int16: behind the end of a sound
SCALE = 32_767


def floats_of(waves: Tensor) -> tuple[Tensor, Tensor]:
    """(B, L) int16 as the data give them, to float32 in [-1, 1] with 0 behind the end, and (B,) lengths.

    >>> floats_of(torch.tensor([[32767, -32767], [0, -32768]], dtype=torch.int16))
    (tensor([[ 1., -1.],
            [ 0.,  0.]]), tensor([2, 1]))
    """
    if waves.ndim != 2 or waves.dtype != torch.int16:
        raise ValueError(f"sounds are {waves.dtype} of shape {tuple(waves.shape)}, expected int16 of shape (B, L)")
    over = waves == OVER
    return waves.to(torch.float32).masked_fill_(over, 0.0).div_(SCALE), (~over).sum(1)


def cut(x: Tensor, start: Tensor, values: int, speed: Tensor | None = None) -> Tensor:
    """From each sound so many values, from its own place on and at its own speed; zeros where there is no sound.

    A faster sound is higher, too, as a tape is. Values between two are those of the cubic through four (Catmull and
    Rom); what a higher sound has above half the rate is folded back, so that speeds are to be near 1.

    Args:
        x: (B, L), zeros behind the end.
        start: (B,) integers; below 0, zeros come first.
        values: of the result.
        speed: (B,) floating point; None is 1 for all.

    Returns:
        (B, values).
    """
    steps = torch.arange(values, device=x.device)
    if speed is None:
        return _at(x, start.to(x.device)[:, None] + steps)
    place = start.to(x.device, torch.float64)[:, None] + steps * speed.to(x.device, torch.float64)[:, None]
    whole = place.floor()
    t = (place - whole).to(x.dtype)  # (B, values) in [0, 1)
    before, first, second, after = (_at(x, whole.long() + k) for k in (-1, 0, 1, 2))
    slope, other = (second - before) / 2, (after - first) / 2
    rise = second - first
    return first + t * (slope + t * ((3 * rise - 2 * slope - other) + t * (slope + other - 2 * rise)))


def _at(x: Tensor, index: Tensor) -> Tensor:
    """(B, n) values at these places, 0 outside."""
    inside = (index >= 0) & (index < x.shape[1])
    return x.gather(1, index.clamp(0, max(x.shape[1] - 1, 0))) * inside


@dataclass(frozen=True)
class Trim:
    """Cuts off the quiet beginning and end of a sound: what comes before and after a word is not part of it.

    The power of each block of values is averaged over the block and its two neighbors. A block is loud if its power is
    within `decibels` of the loudest block and more than `above` over the quietest, which is the noise of the recording;
    blocks within `above` of the loudest always are. The sound begins with the first loud block and ends with the last.

    Attributes:
        decibels: below the loudest block.
        block: values of a block.
        above: dB above the quietest block.
    """

    decibels: float
    block: int
    above: float = 3.0

    @torch.no_grad()
    def __call__(self, waves: Tensor) -> Tensor:
        """(B, L) int16, -32768 behind the end, to (B, L') int16; at least one block of each sound remains."""
        begin, end = self.bounds(waves)
        extent = end - begin
        place = begin[:, None] + torch.arange(int(extent.max()), device=waves.device)
        return waves.gather(1, place.clamp(max=waves.shape[1] - 1)).masked_fill_(place >= end[:, None], OVER)

    def bounds(self, waves: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) the first value of each sound to keep, and (B,) the end behind the last."""
        over = waves == OVER
        lengths = (~over).sum(1)
        x = waves.double().masked_fill_(over, 0.0)
        x -= x.sum(1, keepdim=True) / lengths.clamp(min=1)[:, None]
        x = F.pad(x.masked_fill_(over, 0.0), (0, -x.shape[1] % self.block)).unflatten(1, (-1, self.block))
        blocks = (lengths[:, None] - self.block * torch.arange(x.shape[1], device=x.device)).clamp(0, self.block)
        sums = torch.stack([x.square().sum(2), blocks.double()])  # (2, B, N): squares, and of how many values
        sums = F.avg_pool1d(sums, 3, 1, 1)
        power = 10 * (sums[0] / sums[1]).clamp(min=1e-3).log10()  # (B, N) dB
        power = power.masked_fill(blocks == 0, torch.nan)
        loudest = power.nan_to_num(nan=-torch.inf).amax(1)
        quiet = power.nan_to_num(nan=torch.inf).amin(1)
        level = torch.minimum(torch.maximum(loudest - self.decibels, quiet + self.above), loudest - self.above)
        loud = power > level[:, None]  # NaN is not
        loud[:, 0] |= ~loud.any(1)  # an empty sound
        places = torch.arange(loud.shape[1], device=x.device)
        begin = places.where(loud, loud.shape[1]).amin(1) * self.block
        end = (places.where(loud, -1).amax(1) + 1) * self.block
        return begin, torch.minimum(end, lengths)

    def words(self) -> str:
        """For who writes it in another language."""
        return (
            f"power by blocks of {self.block} values around the mean, averaged over a block and its neighbors; from "
            f"the first to the last block above min(max(loudest - {self.decibels:g} dB, quietest + {self.above:g} dB), "
            f"loudest - {self.above:g} dB)"
        )


def change_gain(x: Tensor, decibels: Tensor) -> Tensor:
    """(B, T) louder by (B,) dB.

    >>> change_gain(torch.ones(1, 1), torch.tensor([20.0]))
    tensor([[10.]])
    """
    return x * (10 ** (decibels.to(x.device, torch.float64) / 20)).to(x.dtype)[:, None]


def leveled(x: Tensor, lengths: Tensor) -> Tensor:
    """(B, T) with mean square 1 over so many (B,) values as each sound has; the others are zeros. Silence stays.

    >>> leveled(torch.tensor([[0.3, -0.3, 0.0], [0.0, 0.0, 0.0]]), torch.tensor([2, 3]))
    tensor([[ 1., -1.,  0.],
            [ 0.,  0.,  0.]])
    """
    power = x.square().sum(1) / lengths.to(x.device, x.dtype).clamp(min=1)
    return x / power.sqrt().clamp(min=1e-6)[:, None]


def add_noise(x: Tensor, noise: Tensor, decibels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """(B, T) with noise (B, T) of unit power, whose power is (B,) dB below that of each sound.

    Args:
        lengths: (B,) values of each sound, behind which there is neither sound nor noise; None: all T.
    """
    power = x.square().mean(1)
    if lengths is not None:
        power = power * x.shape[1] / lengths.to(x.device)
        noise = noise.to(x.device) * (torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None])
    loud = (power / 10 ** (decibels.to(x.device, x.dtype) / 10)).sqrt()
    return x + noise.to(x.device, x.dtype) * loud[:, None]
