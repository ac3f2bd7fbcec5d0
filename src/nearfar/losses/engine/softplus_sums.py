"""Σ_j log(1 + exp(scale · <query_i, keys_j> + bias)), tile by tile: the sum under the sigmoid losses.

The gradient is W = grad ∘ sigmoid(scale · S + bias) times the keys, and its transpose times the queries.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nearfar.losses.arguments import softplus
from nearfar.losses.engine.autograd import (
    Directions,
    Grads,
    Optional,
    Outputs,
    Scalar,
    SumInputs,
)
from nearfar.losses.engine.log_sums import Terms, grid_of, rounded_tiles, sorted_directions, sorted_rows
from nearfar.losses.engine.precision import no_autocast, rounded
from nearfar.losses.engine.second_order import movement, second_gradients, turned_products
from nearfar.losses.engine.tiles import Grid, Tile, strips


class SoftplusSums:
    """The kernel of the sum of softplus."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.grid: Grid | None = None

    def fresh(self) -> "SoftplusSums":
        return SoftplusSums(self.terms)

    def sums(self, rows: SumInputs) -> Outputs:
        assert rows.keys is not None
        self.grid = grid_of(rows)
        total = block_softplus_sums(rows.query, rows.keys, rows.scale, rows.bias, self.grid, self.terms.precision)
        return total, total.new_empty(0), total.new_empty(0)

    def gradients(
        self, rows: SumInputs, sums: Sequence[Tensor], grads: Grads, needs: Sequence[bool]
    ) -> tuple[Optional, Optional, Optional, Optional]:
        query, keys, scale = rows.query, rows.keys, rows.scale
        assert keys is not None
        grad = query.new_zeros(len(query)) if grads[0] is None else grads[0]
        of_query, of_keys, grad_bias = block_softplus_gradients(
            query,
            keys,
            scale,
            rows.bias,
            grad,
            self.grid or grid_of(rows),
            for_keys=needs[1],
            precision=self.terms.precision,
        )
        grad_scale = (query * of_query).sum() if needs[2] else None
        return of_query.mul_(scale), None if of_keys is None else of_keys.mul_(scale), grad_scale, grad_bias

    def tangents(self, rows: SumInputs, sums: Sequence[Tensor], along: Directions) -> Outputs:
        return self.second(rows, sums, (None, None, None), along)[0]

    def second(
        self, rows: SumInputs, sums: Sequence[Tensor], grads: Grads, along: Directions
    ) -> tuple[Outputs, tuple[Tensor, Tensor, Tensor, Tensor]]:
        grid, empty = grid_of(rows), rows.query.new_empty(0)
        with no_autocast(rows.query):
            ordered, direction = sorted_rows(grid, rows), sorted_directions(grid, along)
            grad = None if grads[0] is None else grid.sort_rows(grads[0])
            tangents = rows.query.new_zeros(len(rows.query))

            def weights(tile: Tile, logits: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
                w = logits.add_(rows.bias).sigmoid_()
                tangents[tile.rows] += (w * moved).sum(1)
                own = 0.0 if grad is None else grad[tile.rows, None]
                return own * w, own * w * (1 - w) * moved

            if grad is None:
                _walk(grid, ordered, direction, weights)
                return (grid.restore_rows(tangents), empty, empty.clone()), (empty, empty, empty, empty)
            of_query, of_keys, of_scale, of_bias = second_gradients(grid, ordered, direction, weights)
            found = grid.restore_rows(of_query), grid.restore_columns(of_keys), of_scale, of_bias
        return (grid.restore_rows(tangents), empty, empty.clone()), found


def _walk(grid: Grid, rows: SumInputs, along: Directions, visit: object) -> None:
    """Visit every tile with its logits and how they move."""
    assert rows.keys is not None and callable(visit)
    for tile, logits in grid.similarities(rows.query, rows.keys, rows.scale):
        product = rows.query[tile.rows] @ rows.keys[tile.columns].T
        turned = turned_products(rows.query, rows.keys, along, tile.rows, tile.columns, product)
        visit(tile, logits, movement(product, turned, rows.scale, along))


@torch.no_grad()
def block_softplus_sums(
    query: Tensor, keys: Tensor, scale: Scalar, bias: Scalar, grid: Grid, precision: str = "exact"
) -> Tensor:
    """(B,), the sums over a block of keys, without autograd."""
    with no_autocast(query, precision):
        q, k = grid.sort_rows(rounded(query, precision)), grid.sort_columns(rounded(keys, precision))
        total = q.new_zeros(len(q))
        for tile, s in grid.similarities(q, k, scale):
            for strip, part in strips(s):
                total[tile.rows][strip].add_(softplus(part.add_(bias)).sum(1))
    return grid.restore_rows(total)


@torch.no_grad()
def block_softplus_gradients(
    query: Tensor,
    keys: Tensor,
    scale: Scalar,
    bias: Scalar,
    grad: Tensor,
    grid: Grid,
    *,
    for_keys: bool = True,
    precision: str = "exact",
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Gradients in queries and keys, without the factor `scale`, and in the bias, given that of each sum (B,)."""
    with no_autocast(query, precision):
        q, k = grid.sort_rows(rounded(query, precision)), grid.sort_columns(rounded(keys, precision))
        g = grid.sort_rows(grad)
        grad_bias = query.new_zeros(())

        def weighted(tile_rows: slice, s: Tensor) -> Tensor:
            w = s.add_(bias).sigmoid_().mul_(g[tile_rows, None])
            grad_bias.add_(w.sum())
            return w

        weights = ((tile, weighted(tile.rows, s)) for tile, s in grid.similarities(q, k, scale))
        of_query, of_keys = grid.weighted_sums(q, k, rounded_tiles(weights, precision), for_keys=for_keys)
    return grid.restore_rows(of_query), None if of_keys is None else grid.restore_columns(of_keys), grad_bias
