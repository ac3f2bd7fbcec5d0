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
    steps: int  # of the optimizer, in the whole run; if that is too short, in the length that is advised
    batch_size: int
    accumulate: int = 1
    start_weights: bool = False  # whether the encoder begins with given weights
    too_short: bool = False  # `steps` are those that are advised, not those of the run


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
    when = f"even after {steps:,} steps" if facts.too_short else f"at the end of the run, after {steps:,} steps"
    longer = "" if facts.too_short else ", or train longer"
    text = (
        f"{when}, {left:.0%} of the momentum network would still be its untrained start (momentum {momentum:g}); "
        f"set --options.momentum {fit:.2g}{longer}"
    )
    return [Verdict("warning", "momentum", text)]


def queue_advice(size: int, facts: RunFacts) -> list[Verdict]:
    """Whether a queue of so many keys is larger than the data."""
    if size <= facts.samples:
        return []
    fit = max(facts.batch_size, 2 ** int(math.log2(max(2, facts.samples // 2))))
    keys = facts.steps * facts.accumulate * facts.batch_size
    if keys < size and not facts.too_short:
        why = f"and the run fills only {keys:,} of its places"
    else:
        why = "so once full it holds several keys of each sample, most of them computed with old weights"
    larger = f"the queue of {size:,} keys is larger than the {facts.samples:,} samples"
    return [Verdict("warning", "queue_size", f"{larger}, {why}; set --options.queue_size {fit}")]
