"""The same caption twice: perfect embeddings cost the logarithm of the copies."""

import functools
import math

import pytest
import torch

from nearfar.lab.gradient import gradient_in_similarities
from nearfar.losses import symmetric_info_nce
from tests.pitfalls.page import Numbers, as_told, code_of

CAPTIONS, COPIES, SCALE = 32, 4, 50.0


@functools.cache
def damage() -> Numbers:
    met = code_of("duplicates")["clip_loss"]
    caption = torch.arange(CAPTIONS).repeat(COPIES)
    z = torch.eye(CAPTIONS, dtype=torch.float64)[caption]  # pictures of a caption lie on it
    cosine = z @ z.T
    others = ~torch.eye(len(z), dtype=torch.bool)
    negatives, copies = cosine[others].view(len(z), -1), (caption[:, None] == caption)[others].view(len(z), -1)
    _, push = gradient_in_similarities(cosine.diagonal(), negatives, 1 / SCALE)
    right = symmetric_info_nce(z, z, temperature=1 / SCALE, ids=caption)
    return {
        "loss, wrong": float(met(z, z, SCALE)),
        "log of the copies": math.log(COPIES),
        "loss, right": round(float(right), 12),
        "push on the same caption, wrong": float(push[copies].sum() / push.sum()),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["loss, wrong"] == pytest.approx(numbers["log of the copies"], rel=1e-6)
    assert numbers["loss, right"] < 1e-10
    assert numbers["push on the same caption, wrong"] > 0.99


def test_loss_stands_at_the_log_of_the_copies() -> None:
    as_told("duplicates", damage(), claim)
