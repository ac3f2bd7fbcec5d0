"""The views of a batch as one stack of normalized rows: what losses of two or more views start from."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.losses.arguments import check_pair, check_rows, inverse_temperature, l2_normalize
from nearfar.losses.engine.backends import mark_as_of_one_batch, require_all_rows
from nearfar.losses.engine.gathered import warn_if_not_gathered
from nearfar.losses.engine.layout import default_ids
from nearfar.losses.engine.similarity import paired_similarity, sample_ids


class TwoViews(NamedTuple):
    """Both views of a batch, stacked."""

    z: Tensor  # (2B, D) normalized, z1 before z2
    ids: Tensor  # (2B,)
    scale: float | Tensor  # 1 / temperature
    positive: Tensor  # (2B,), the logit of each view with the other view of its sample


def two_views(z1: Tensor, z2: Tensor, temperature: float | Tensor, ids: Tensor | None) -> TwoViews:
    """What the losses of two views (B, D) start from."""
    z, ids = stack_views(z1, z2, ids)
    scale = inverse_temperature(temperature, z)
    first, second = z.unflatten(0, (2, -1)).unbind()
    return TwoViews(z, ids, scale, (scale * paired_similarity(first, second)).expand(2, -1).flatten())


def stack_views(z1: Tensor, z2: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor]:
    """(2B, D) normalized rows, z1 before z2, and their (2B,) ids: both views of a sample have the same."""
    check_pair("z1", z1, "z2", z2)
    warn_if_not_gathered(z1)
    if ids is None:
        require_all_rows("a loss without ids")
    both = default_ids(z1.shape[0], 2, z1) if ids is None else sample_ids(z1, ids).repeat(2)
    return l2_normalize(torch.cat([z1, z2])), both


def stack_many_views(
    views: Sequence[Tensor], local: Sequence[Tensor], ids: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """(K · B, D) normalized rows of the views and their ids, and (L · B, D) of the local views and theirs, or None."""
    if len(views) < 2:
        raise ValueError(f"views has {len(views)} views, expected at least 2: each is another's positive")
    check_rows("views[0]", views[0])
    for name, others in (("views", views[1:]), ("local", local)):
        for i, z in enumerate(others, start=1 if name == "views" else 0):
            check_pair("views[0]", views[0], f"{name}[{i}]", z)
    of_sample = sample_ids(views[0], ids)
    rows, count = views[0].shape[0], len(views)
    view_ids = default_ids(rows, count, views[0]) if ids is None else of_sample.repeat(count)
    z = l2_normalize(torch.cat(list(views)))
    if not local:
        return z, view_ids, None, None
    local_ids = of_sample.repeat(len(local))
    mark_as_of_one_batch(local_ids, view_ids)
    return z, view_ids, l2_normalize(torch.cat(list(local))), local_ids
