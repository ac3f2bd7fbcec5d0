"""A queue of random rows: tens of nats for embeddings without a fault."""

import functools
import math

import torch
import torch.nn.functional as F

from nearfar.losses import info_nce
from nearfar.nn.queue import Queue
from tests.pitfalls.page import Numbers, as_told, code_of

K, D = 4096, 128


@functools.cache
def damage() -> Numbers:
    met = code_of("queue_start")["first_loss"]
    torch.manual_seed(0)
    q = F.normalize(torch.randn(64, D), dim=1)
    wrong = float(met(q, q, K))
    even = float(info_nce(q, q, torch.randn(K, D), temperature=0.07))
    return {"loss, rows as drawn": wrong, "loss, rows of unit length": even, "log(K + 1)": math.log(K + 1)}


def claim(numbers: Numbers) -> None:
    assert numbers["loss, rows as drawn"] > 4 * numbers["log(K + 1)"] and numbers["loss, rows of unit length"] < 0.01


def test_rows_as_drawn_are_harder_than_any_sample() -> None:
    as_told("queue_start", damage(), claim)


def test_an_empty_queue_has_no_rows() -> None:
    queue = Queue(K, D)
    assert len(queue.keys()) == 0
    queue.push(100 * torch.randn(5, D), torch.arange(5))
    torch.testing.assert_close(queue.keys().norm(dim=1), torch.ones(5))
