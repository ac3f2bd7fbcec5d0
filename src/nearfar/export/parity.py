"""Does what was exported compute what the encoder computes?"""

from collections.abc import Callable

import torch
from torch import Tensor

from nearfar.export.model import Encoder

TOLERANCE = 1e-3  # of the largest feature
BATCHES = (1, 3)  # none of them the batch that was exported with


def example(encoder: Encoder, batch: int, seed: int = 0) -> Tensor:
    """(B, 3, S, S) prepared images of noise."""
    side = encoder.card["image_size"]
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def check_parity(encoder: Encoder, exported: Callable[[Tensor], Tensor], what: str) -> float:
    """The largest difference, as a part of the largest feature, over batches of several sizes.

    Raises:
        ValueError: where it is more than 1e-3, or the shape is another.
    """
    worst = 0.0
    for batch in BATCHES:
        x = example(encoder, batch, seed=batch)
        wanted, found = encoder(x), exported(x)
        if found.shape != wanted.shape:
            raise ValueError(f"{what} gives shape {tuple(found.shape)}, expected {tuple(wanted.shape)}; not written")
        worst = max(worst, float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-12)))
    if not worst <= TOLERANCE:
        raise ValueError(f"{what} differs from the encoder by {worst:.1e} of the largest feature; not written")
    return worst
