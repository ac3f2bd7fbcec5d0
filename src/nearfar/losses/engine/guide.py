"""Pairs that are left out by the similarities of another encoder."""

from typing import NamedTuple

from torch import Tensor

from nearfar.losses.engine.precision import no_autocast


class Guide(NamedTuple):
    """Rows of a guide for queries and keys. A pair whose inner product is above the query's limit is left out.

    The products are computed tile by tile, as those of the rows themselves, so memory stays linear.

    >>> import torch
    >>> Guide(torch.eye(2), torch.eye(2), torch.tensor([0.5, 2.0])).excluded(slice(2), slice(2)).tolist()
    [[True, False], [False, False]]
    """

    query: Tensor  # (B, G)
    keys: Tensor  # (M, G)
    limit: Tensor  # (B,)

    def excluded(self, rows: slice, columns: slice) -> Tensor:
        """A mask of these queries and keys."""
        with no_autocast(self.query):
            return self.query[rows] @ self.keys[columns].T > self.limit[rows, None]
