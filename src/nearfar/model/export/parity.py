"""Does what was exported compute what the encoder computes?"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nearfar.model.card import Card
from nearfar.model.encoder import Encoder

TOLERANCE = 1e-3  # of the largest feature
BATCHES = (1, 3)  # none of them the batch that was exported with


@dataclass(frozen=True)
class Exportable:
    """A network, and what it is fed with."""

    network: nn.Module  # input (B, ...) to features (B, F)
    input: str  # "images", prepared, (B, 3, S, S); or "tokens" (B, L), 0 where there is no text
    example: Callable[[int, int], Tensor]  # batch and seed to an input
    card: Card
    longest: int | None = None  # L at most, of tokens
    facts: dict[str, object] = field(default_factory=dict)  # of the network, for the file's metadata


def exportables(model: Encoder) -> list[Exportable]:
    """What a model is as networks of one input: one, or of images and texts two."""
    found = []
    for kind in model.modality.queries:
        if kind == "image":
            found.append(_of_images(model))
        elif kind == "text" and "image" in model.modality.queries:
            tower = model.backbone.second
            found.append(_of_texts(tower, tower.encoder, model.card))  # type: ignore[arg-type, union-attr]
        elif kind == "text":
            found.append(_of_texts(_whole(model), model.backbone, model.card))
    return found


def _of_images(encoder: Encoder) -> Exportable:
    side = encoder.card["image_size"]

    def noise(batch: int, seed: int) -> Tensor:
        return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(seed))

    return Exportable(_whole(encoder), "images", noise, encoder.card)


def _whole(encoder: Encoder) -> nn.Module:
    """The network with the transform of its features."""
    return encoder.backbone if encoder.transform is None else nn.Sequential(encoder.backbone, encoder.transform).eval()


def _of_texts(network: nn.Module, encoder: nn.Module, card: Card) -> Exportable:
    vocab_size, max_length = int(encoder.vocab_size), int(encoder.max_length)  # type: ignore[arg-type]

    def noise(batch: int, seed: int) -> Tensor:
        """Of another length for every batch, and padding in all rows but the first."""
        shape = batch, min(max_length, 4 + batch)
        tokens = torch.randint(1, vocab_size, shape, generator=torch.Generator().manual_seed(seed))
        tokens[1:, -2:] = 0
        return tokens

    facts: dict[str, object] = {"max_length": max_length, "vocab_size": vocab_size}
    return Exportable(network, "tokens", noise, card, longest=max_length, facts=facts)


@torch.no_grad()
def check_parity(part: Exportable, exported: Callable[[Tensor], Tensor], what: str) -> float:
    """The largest difference, as a part of the largest feature, over batches of several sizes.

    Raises:
        ValueError: where it is more than 1e-3, or the shape is another.
    """
    worst = 0.0
    for batch in BATCHES:
        x = part.example(batch, batch)
        wanted, found = part.network(x), exported(x)
        if found.shape != wanted.shape:
            raise ValueError(f"{what} gives shape {tuple(found.shape)}, expected {tuple(wanted.shape)}; not written")
        worst = max(worst, float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-12)))
    if not worst <= TOLERANCE:
        raise ValueError(f"{what} differs from the encoder by {worst:.1e} of the largest feature; not written")
    return worst
