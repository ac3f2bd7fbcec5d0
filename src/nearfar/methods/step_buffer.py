"""What `contrast` saw and `after_step` stores."""

from torch import Tensor

MOST = 1024  # batches between two steps of the optimizer; more than anyone accumulates


class StepBuffer:
    """Rows of the batches contrasted since the last step: one, or several under gradient accumulation.

    No part of a checkpoint: between a step and the next batch it is empty.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[Tensor, ...]] = []

    def add(self, *rows: Tensor) -> None:
        if len(self._batches) == MOST:
            raise RuntimeError(
                f"{MOST} batches were contrasted and after_step was never called: queue, bank and momentum network "
                "are not updated; call method.after_step(progress) after each step of the optimizer"
            )
        self._batches.append(tuple(r.detach() for r in rows))

    def take(self) -> list[tuple[Tensor, ...]]:
        batches, self._batches = self._batches, []
        return batches
