"""Views of rows: some columns keep their values, the others take those of other rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from nearfar.modalities.table.data import TableDataset
from nearfar.nn.seeding import seeded_generator

# Preset to the views that it makes: the row as it is, or with columns of other rows.
TABLE_PRESETS: dict[str, Callable[[], tuple[bool, ...]]] = {
    "scarf": lambda: (False, True),  # SCARF's: the row and a corrupted one
    "corrupted": lambda: (True, True),  # for methods whose views are equal
}


def corrupted(
    samples: Tensor, source: TableDataset, index: Tensor, rate: float, *, seed: int, step: int, view: int
) -> Tensor:
    """(B, C) rows, of which a part of the columns, rounded down, has the value of a row drawn for each.

    The draws are a sample's own, whatever batch and process it is in.

    Reference: Bahri et al. 2021, algorithm 1, https://arxiv.org/abs/2106.15147
    """
    changed, many = samples.clone(), int(rate * samples.shape[1])
    for row, number in enumerate(index.tolist()):
        generator = seeded_generator(seed, step, 16 * number + view)
        columns = torch.randperm(samples.shape[1], generator=generator)[:many]
        others = torch.randint(len(source), (many,), generator=generator)
        changed[row, columns.to(samples.device)] = source.values[others, columns].to(samples)
    return changed
