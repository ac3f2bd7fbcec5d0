"""A queue that loses rows where it wraps around."""

import functools

import torch

from nearfar.nn import Queue
from tests.pitfalls.page import as_told, code_of

SIZE, BATCH, BATCHES = 128, 48, 100


@functools.cache
def damage() -> dict[str, float]:
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


def test_rows_are_lost_at_every_turn() -> None:
    found = damage()
    assert found["never in the queue, wrong"] > 0.05 * found["keys pushed"]
    assert found["never in the queue, right"] == 0 and found["of the newest 128, right"] == SIZE
    as_told("queue_wrap", found)
