"""Random numbers as a function of (seed, step): the same run draws the same numbers, wherever it is resumed."""

import hashlib

import torch


def seeded_generator(seed: int, step: int, stream: int) -> torch.Generator:
    """A CPU generator of its own for each (seed, step, stream); a stream is, for instance, the number of a view."""
    return torch.Generator().manual_seed(mix_seed(f"{seed}/{step}/{stream}"))


def step_generator(seed: int, step: int) -> torch.Generator:
    """A CPU generator for each (seed, step); any seed below 2^63 will do."""
    return torch.Generator().manual_seed((seed * 0x9E3779B1 + step) % 2**64)


def mix_seed(text: str) -> int:
    """A seed from a text; texts that differ little give seeds that have nothing in common."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
