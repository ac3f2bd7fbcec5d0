"""Random numbers as a function of (seed, step): the same run draws the same numbers, wherever it is resumed."""

import hashlib

import torch


def seeded_generator(seed: int, step: int, stream: int) -> torch.Generator:
    """A CPU generator of its own for each (seed, step, stream); a stream is, for instance, the number of a view."""
    return torch.Generator().manual_seed(mix_seed(f"{seed}/{step}/{stream}"))


def mix_seed(text: str) -> int:
    """A seed from a text; texts that differ little give seeds that have nothing in common."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
