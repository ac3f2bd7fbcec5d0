"""The rows of a batch that one of several processes views: chance is drawn for all, and each takes its own."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Part:
    """Rows `first` to `first + count` of `total`."""

    first: int
    count: int
    total: int
    gather: Callable[[Tensor], Tensor]  # the rows (count, ...) of each process to those of all (total, ...)

    def own(self, drawn: Tensor, dim: int = 0) -> Tensor:
        """Of what was drawn for all rows, along `dim`, that of this process."""
        return drawn.narrow(dim, self.first, self.count)


def rows_of(part: Part | None, here: int) -> int:
    """For how many rows chance is drawn, where so many are here."""
    return here if part is None else part.total
