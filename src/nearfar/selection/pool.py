"""What may still be selected: not yet taken, not a near-duplicate of what is there, not of a group that is full."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from nearfar.losses.arguments import l2_normalize
from nearfar.search.duplicates import ROUNDING, find_threshold
from nearfar.search.search import InMemory, exact

QUERIES = 2048  # rows whose neighbors set the threshold of near-duplicates
NEIGHBORS = 16


@dataclass(frozen=True)
class Pick:
    """One selected row and why."""

    row: int
    reason: str


@dataclass
class Pool:
    """N samples, of which some are labelled and some were selected.

    Attributes:
        x: (N, D) unit rows.
        labelled: (L,) rows that count as covered.
        seed: of everything that is drawn.
        threshold: cosine from which a row is a near-duplicate of one that is there; None: none is.
        groups: (N,) integers: each group gets about as many selected and labelled rows as the others.
        total: rows to select.
    """

    x: Tensor
    labelled: Tensor
    seed: int
    total: int
    threshold: float | None = None
    groups: Tensor | None = None
    picks: list[Pick] = field(default_factory=list)
    left_out: int = 0  # near-duplicates that were met

    def __post_init__(self) -> None:
        self.available = torch.ones(len(self.x), dtype=torch.bool)
        self.available[self.labelled] = False
        self._there = [self.x[self.labelled]]
        self._quota = None if self.groups is None else quotas(self.groups, self.labelled, self.total)
        if self._quota is not None and self.groups is not None:
            self.available &= self._quota[self.groups] > 0

    def __len__(self) -> int:
        return len(self.x)

    @property
    def done(self) -> bool:
        return len(self.picks) >= self.total or not bool(self.available.any())

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def covered(self) -> Tensor:
        """(L + S,) labelled and selected rows."""
        return torch.cat([self.labelled, torch.tensor([pick.row for pick in self.picks], dtype=torch.long)])

    def take(self, row: int, reason: str) -> bool:
        """Select a row; False, and it is out, where it is a near-duplicate of one that is there."""
        self.available[row] = False
        if self._has_duplicate(row):
            self.left_out += 1
            return False
        self.picks.append(Pick(row, reason))
        self._there.append(self.x[row : row + 1])
        if self._quota is not None and self.groups is not None:
            group = self.groups[row]
            self._quota[group] -= 1
            if self._quota[group] == 0:
                self.available &= self.groups != group
        return True

    def _has_duplicate(self, row: int) -> bool:
        if self.threshold is None:
            return False
        if len(self._there) > 64:
            self._there = [torch.cat(self._there)]
        highest = max((float((rows @ self.x[row]).amax()) for rows in self._there if len(rows)), default=-1.0)
        return highest >= self.threshold


def quotas(groups: Tensor, labelled: Tensor, total: int) -> Tensor:
    """(G,) rows to select of each group, so that labelled and selected together are as even as the groups allow.

    >>> quotas(torch.tensor([0, 0, 0, 0, 1, 2, 2, 2]), torch.tensor([0]), 4).tolist()
    [1, 1, 2]
    """
    size = groups.bincount()
    there = groups[labelled].bincount(minlength=len(size))
    quota = torch.zeros_like(size)
    for _ in range(min(total, int((size - there).sum()))):
        level = (there + quota).double()
        level[there + quota >= size] = torch.inf
        quota[level.argmin()] += 1
    return quota


def duplicate_threshold(x: Tensor, seed: int) -> float:
    """The cosine from which rows are near-duplicates, as `find_duplicates` finds it, of at most 2,048 rows' neighbors.

    Args:
        x: (N, D) unit rows.
        seed: of the rows that are drawn.
    """
    if len(x) <= NEIGHBORS + 1:
        return 1 - ROUNDING**2 / 2
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:QUERIES].sort().values
    similarities, found = exact(InMemory(x))(l2_normalize(x[rows]), NEIGHBORS + 1)
    other = found != rows[:, None]
    other[:, -1] &= ~other.all(1)  # equal rows may have displaced the query itself
    return find_threshold(similarities[other].view(len(rows), NEIGHBORS))[0]
