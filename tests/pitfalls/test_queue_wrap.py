"""A queue that loses rows where it wraps around."""

import functools

import torch

from nearfar.nn.queue import Queue
from tests.pitfalls.page import Numbers, as_told, code_of

SIZE, BATCH, BATCHES = 128, 48, 100


@functools.cache
def damage() -> Numbers:
    met, ours = code_of("queue_wrap")["RowQueue"](SIZE, 1), Queue(SIZE, 1)
    seen_wrong: set[int] = set()
    seen_right: set[int] = set()
    for number in range(BATCHES):
        ids = BATCH * number + torch.arange(BATCH)
        met.push(ids[:, None].float())  # a key is its own number
        ours.push(torch.ones(BATCH, 1), ids)
        seen_wrong.update(met.rows[:, 0].long().tolist())
        seen_right.update(ours.ids().tolist())
    everything = set(range(BATCH * BATCHES))
    newest = set(range(BATCH * BATCHES - SIZE, BATCH * BATCHES))
    return {
        "keys pushed": len(everything),
        "never in the queue, wrong": len(everything - seen_wrong),
        "never in the queue, right": len(everything - seen_right),
        "of the newest 128, wrong": len(newest & set(met.rows[:, 0].long().tolist())),
        "of the newest 128, right": len(newest & set(ours.ids().tolist())),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["never in the queue, wrong"] > 0.1 * numbers["keys pushed"]
    assert numbers["never in the queue, right"] == 0
    assert numbers["of the newest 128, wrong"] < numbers["of the newest 128, right"] == SIZE


def test_rows_are_lost_at_every_turn() -> None:
    as_told("queue_wrap", damage(), claim)
