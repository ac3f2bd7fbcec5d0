"""Second derivatives of the sums: how logits move along a direction, and gradients of sums of such movements."""

from collections.abc import Callable

import torch
from torch import Tensor

from nearfar.losses.engine.autograd import Directions, Optional, Scalar, SumInputs
from nearfar.losses.engine.tiles import Grid, Tile


def second_gradients(
    grid: Grid,
    rows: SumInputs,
    along: Directions,
    weights: Callable[[Tile, Tensor, Tensor], tuple[Tensor, Tensor]],
    pairs: Optional = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradient of Σ W ∘ T in query, keys, scale and bias, where T is how the logits move along a direction.

    Args:
        rows: in the order of the grid, whose keys are a tensor of their own.
        weights: of a tile, its logits and its T: the tiles of W, and of dW/dlogit ∘ T.
        pairs: (B,), added to W's diagonal; constant.
    """
    query, keys, scale = rows.query, rows.keys, rows.scale
    assert keys is not None
    moved_query, moved_keys = _scaled_and_moved(rows, along)
    of_query, of_keys = torch.zeros_like(query), torch.zeros_like(keys)
    of_scale, of_bias = query.new_zeros(()), query.new_zeros(())
    for tile, logits in grid.similarities(query, keys, scale):
        product = query[tile.rows] @ keys[tile.columns].T
        turned = turned_products(query, keys, along, tile.rows, tile.columns, product)
        w, h = weights(tile, logits, movement(product, turned, scale, along))
        of_query[tile.rows] += scale * (h @ keys[tile.columns]) + w @ moved_keys[tile.columns]
        of_keys[tile.columns] += scale * (h.T @ query[tile.rows]) + w.T @ moved_query[tile.rows]
        of_scale += (h * product).sum() + (w * turned).sum()
        of_bias += h.sum()
    if pairs is not None:
        of_query += pairs[:, None] * moved_keys
        of_keys += pairs[:, None] * moved_query
        of_scale += (pairs * _paired_turns(query, keys, along)).sum()
    return of_query, of_keys, of_scale, of_bias


def turned_products(
    query: Tensor, keys: Tensor, along: Directions, rows: slice, columns: slice, like: Tensor
) -> Tensor:
    """How the tile of query @ keys.T moves along a direction."""
    found = torch.zeros_like(like)
    if along.query is not None:
        found.addmm_(along.query[rows], keys[columns].T)
    if along.keys is not None:
        found.addmm_(query[rows], along.keys[columns].T)
    return found


def movement(product: Tensor, turned: Tensor, scale: Scalar, along: Directions) -> Tensor:
    """How the logits of a tile move along a direction."""
    moved = scale * turned
    if along.scale is not None:
        moved = moved + along.scale * product
    return moved if along.bias is None else moved + along.bias


def paired_movement(rows: SumInputs, along: Directions) -> Tensor:
    """(B,), how the logit of each row with the same row of the keys moves."""
    assert rows.keys is not None
    return movement((rows.query * rows.keys).sum(-1), _paired_turns(rows.query, rows.keys, along), rows.scale, along)


def _paired_turns(query: Tensor, keys: Tensor, along: Directions) -> Tensor:
    found = torch.zeros_like(query[:, 0])
    if along.query is not None:
        found = found + (along.query * keys).sum(-1)
    return found if along.keys is None else found + (query * along.keys).sum(-1)


def _scaled_and_moved(rows: SumInputs, along: Directions) -> tuple[Tensor, Tensor]:
    """scale · v + v_scale · rows, of queries and keys."""
    found = []
    for x, v in ((rows.query, along.query), (rows.keys, along.keys)):
        assert x is not None
        moved = torch.zeros_like(x) if v is None else rows.scale * v
        found.append(moved if along.scale is None else moved + along.scale * x)
    return found[0], found[1]
