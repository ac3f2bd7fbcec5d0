"""The InfoNCE bound proven on tables, where every term can be counted.

v says which of N candidates X came with the context c; the other N - 1 were drawn from p(x) alone. The loss of any
critic is a cross-entropy, so at least `H(v | X, c)`. By the chain rule, once each way,

    I(v, X; c) = I(X; c) + I(v; c | X) = I(X; c) + log N - H(v | X, c)      since v is independent of X
    I(v, X; c) = I(v; c) + I(X; c | v) = I(x; c)                            since v is independent of c

so `H(v | X, c) = log N - I(x; c) + I(X; c)`: no loss is below `log N - I(x; c)`.
"""

import math
from itertools import product
from typing import Any, NamedTuple

import torch

from nearfar.lab.information import conditional_entropy, mutual_information
from nearfar.lab.probability import check_int, joint_table, marginal

_CELLS = 1_000_000


class ContrastiveTask(NamedTuple):
    """The contrastive task of N candidates, by counting."""

    least_loss: float  # H(v | X, c): of the best critic there is
    candidates: float  # I(X; c): what the candidates tell of the context while it is unknown which is the true one
    information: float  # I(x; c)

    def bound(self, n: int) -> float:
        """log N - H(v | X, c)."""
        return math.log(n) - self.least_loss


def contrastive_task(joint: Any, n: int) -> ContrastiveTask:
    """Count all outcomes of the task.

    Args:
        joint: p(x, c), small: n · (values of x)ⁿ · (values of c) cells are looked at.
        n: candidates, the true one among them.

    >>> task = contrastive_task([[0.5, 0.0], [0.0, 0.5]], 2)  # a fair copy, one negative: confused half of the time
    >>> round(task.least_loss / math.log(2), 6), round(task.candidates / math.log(2), 6)
    (0.5, 0.5)
    """
    table = joint_table(joint)
    values, contexts = table.shape
    if check_int("n", n, 1) * values**n * contexts > _CELLS:
        raise ValueError(f"n is {n} for a table of {values} × {contexts}, expected few: all is counted")
    p = marginal(table, "x")
    cells = torch.zeros(n, values**n, contexts, dtype=torch.float64)  # p(v, X, c)
    for place, candidates in enumerate(product(range(values), repeat=n)):
        for v in range(n):
            others = math.prod(float(p[x]) for i, x in enumerate(candidates) if i != v)
            cells[v, place] = table[candidates[v]] * others / n
    return ContrastiveTask(
        least_loss=conditional_entropy(cells.reshape(n, -1)),
        candidates=mutual_information(cells.sum(0)),
        information=mutual_information(table),
    )
