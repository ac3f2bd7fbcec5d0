"""Two to the power of nats is no perplexity."""

import functools

import torch
import torch.nn.functional as F

from nearfar.lab import perplexity
from tests.pitfalls.page import Numbers, as_told, code_of

N = 256


@functools.cache
def damage() -> Numbers:
    guess = torch.zeros(8, N, dtype=torch.float64)  # all candidates alike
    loss = float(F.cross_entropy(guess, torch.arange(8)))
    return {
        "perplexity, wrong": code_of("perplexity")["perplexity"](loss),
        "perplexity, right": perplexity([1 / N] * 8),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["perplexity, wrong"] < 50 and abs(numbers["perplexity, right"] - N) < 1e-9


def test_who_guesses_among_256_is_as_lost_as_among_256() -> None:
    as_told("perplexity", damage(), claim)
