"""Any number of views: how they are encoded, named, and paired.

- **A batch has full views first, then local ones** (`Batch.local` says how many). `encode` names what it makes of
  them z1, z2, ... and z_local1, ...: a flat dict of rows of samples, so that chunks, gather and ring need not know of
  views.
- **One `encode_views` for all methods**: each full view is a pass of its own, with BatchNorm statistics of its own,
  as in the authors' code of BYOL, MoCo and Barlow Twins. Local views of one shape are one pass, as in that of SwAV
  and DINO. MoCo passes every view by itself, since its BatchNorm sees groups of the batch.
- **Two views give the bits of before**: sums over pairs begin with the same terms in the same order, and are divided
  by powers of two. `tests/methods/test_many_views.py` has the old rules, and compares loss, gradient and buffers.
- **A local view is a query and never a key, target or negative**: a small part of a picture should be found to belong
  to the whole, not the whole to the part. SupCon alone takes them as any view, since all of a class are positives.
- **The rows of NT-Xent weigh the same**: the loss of a row is the mean over its positives, and the loss the mean over
  rows. A mean over all (row, positive) pairs is the same without local views; with them it would give a local row K
  votes and a full one K - 1. Its negatives are the K views of other samples, so log N is log(K (B - 1) + 1).
- **The ring** takes queries that are no keys if both are marked as rows of one batch: equal ids alone could be a
  queue's.
- **A count beyond the preset's recipes repeats them in turn.** View i is drawn from (seed, step, i): more views
  change none. InstDisc is made for one view, so a preset of two equal ones is cut to one, unless `--views.count` says
  more.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nearfar.methods.method import Batch, Encoded


class Views(NamedTuple):
    """What was made of each view of a batch, each (B, ...)."""

    full: list[Tensor]
    local: list[Tensor]

    @property
    def every(self) -> list[Tensor]:
        return [*self.full, *self.local]

    def detached(self) -> "Views":
        return Views([x.detach() for x in self.full], [x.detach() for x in self.local])


def views_of(batch: Batch) -> Views:
    return Views(list(batch.full_views), list(batch.local_views))


def encode_views(network: nn.Module, views: Views) -> Views:
    """The network on each full view, one after the other, and on all local views of one shape together.

    BatchNorm sees a full view by itself, as in the authors' code of BYOL, MoCo and Barlow Twins. Local views of one
    shape are one pass, with shared BatchNorm statistics, as in the authors' code of SwAV and DINO.
    """
    full = [network(x) for x in views.full]
    local: dict[int, Tensor] = {}
    for places in _same_shape(views.local):
        made: Tensor = network(torch.cat([views.local[i] for i in places]))
        local |= dict(zip(places, made.tensor_split(len(places)), strict=True))
    return Views(full, [local[i] for i in range(len(views.local))])


def _same_shape(views: Sequence[Tensor]) -> Iterator[list[int]]:
    """The places of views that have one shape."""
    shapes = [x.shape for x in views]
    for shape in dict.fromkeys(shapes):
        yield [i for i, each in enumerate(shapes) if each == shape]


def by_name(name: str, views: Views) -> Encoded:
    """As `encode` returns them: z1, z2, ... and z_local1, z_local2, ...

    >>> list(by_name("z", Views([torch.ones(2)] * 2, [torch.ones(2)])))
    ['z1', 'z2', 'z_local1']
    """
    full = {f"{name}{i}": x for i, x in enumerate(views.full, 1)}
    return full | {f"{name}_local{i}": x for i, x in enumerate(views.local, 1)}


def from_names(encoded: Encoded, name: str) -> Views:
    """What `by_name` named so."""
    found: list[list[Tensor]] = []
    for prefix in (name, f"{name}_local"):
        found.append([])
        while (key := f"{prefix}{len(found[-1]) + 1}") in encoded:
            found[-1].append(encoded[key])
    return Views(*found)


def pairs_of(full: int, local: int) -> list[tuple[int, int]]:
    """Places (a, b) of all ordered pairs of views whose second is a full one: each view with each other full view.

    >>> pairs_of(2, 1)
    [(0, 1), (1, 0), (2, 0), (2, 1)]
    """
    return [(a, b) for a, b in product(range(full + local), range(full)) if a != b]


def add(terms: Sequence[Tensor]) -> Tensor:
    """The sum, one after the other."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
