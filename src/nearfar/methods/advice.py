"""What a method says of a run before its first step: which options do not fit the data, and what to set instead."""

import math
from dataclasses import dataclass
from typing import Literal

Level = Literal["good", "note", "warning", "error"]
_LEFT = 0.05  # part of a momentum network that may still be its untrained start at the end of the run


@dataclass(frozen=True)
class Verdict:
    """One sentence about the run, and what to do."""

    level: Level
    name: str  # of the rule, so that it is said once until it changes
    text: str


@dataclass(frozen=True)
class RunFacts:
    """What advice depends on."""

    samples: int  # of the training part
    steps: int  # of the optimizer, in the whole run
    batch_size: int
    accumulate: int = 1
    start_weights: bool = False  # whether the encoder begins with given weights


def momentum_advice(momentum: float, facts: RunFacts, *, rising: bool) -> list[Verdict]:
    """Whether a momentum network gets away from its untrained start.

    Args:
        rising: the momentum rises to 1 by a cosine, so that it is on average half as far from 1.
    """
    steps, slower = facts.steps, 2 if rising else 1
    left = math.exp(-(1 - momentum) * steps / 2) if rising else momentum**steps
    if left <= _LEFT:
        return []
    fit = 1 - 20 * slower / max(steps, 40 * slower)
    text = (
        f"at momentum {momentum:g}, {left:.0%} of the momentum network is still its untrained start after "
        f"{steps:,} steps; set --options.momentum {fit:.2g}, or train longer"
    )
    return [Verdict("warning", "momentum", text)]


def queue_advice(size: int, facts: RunFacts) -> list[Verdict]:
    """Whether a queue of so many keys holds each sample several times."""
    if size <= facts.samples:
        return []
    fit = max(facts.batch_size, 2 ** int(math.log2(max(2, facts.samples // 2))))
    never = " and is never full" if facts.steps * facts.accumulate * facts.batch_size < size else ""
    text = (
        f"the queue of {size:,} keys is larger than the {facts.samples:,} samples: it holds each many times, "
        f"from encoders long gone{never}; set --options.queue_size {fit}"
    )
    return [Verdict("warning", "queue_size", text)]
