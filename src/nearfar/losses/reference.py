"""Plain definitions to compare the losses with: what they share, and the list of them.

Each loss has its paper's definition below it in its own file: a plain loop over rows, which shares no code with the
engine. It takes the same arguments and returns the loss of each row (a scalar where the definition has no rows). It is
slow. `definition_of` adds both to `DEFINITIONS`; `nearfar check` and the tests compare value and gradient of each.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

Number = float | Tensor
Ids = Tensor | None  # pairs of equal ids are excluded; None: no pair is
Function = Callable[..., Tensor]
F = TypeVar("F", bound=Function)
Call = Callable[[Function, Tensor, Tensor, Tensor], Tensor]  # of a loss, two views (B, D) and a temperature


class Definition(NamedTuple):
    loss: Function
    reference: Function
    call: Call  # how either is called with two views and a temperature


DEFINITIONS: dict[str, Definition] = {}  # by the name of the loss


def with_temperature(loss: Function, z1: Tensor, z2: Tensor, temperature: Tensor) -> Tensor:
    return loss(z1, z2, temperature=temperature)


def views_alone(loss: Function, z1: Tensor, z2: Tensor, temperature: Tensor) -> Tensor:
    return loss(z1, z2)


def definition_of(loss: Function, call: Call = with_temperature) -> Callable[[F], F]:
    """Declare the decorated function as the plain definition of `loss`, and how to call the two to compare them."""

    def declare(reference: F) -> F:
        DEFINITIONS[loss.__name__] = Definition(loss, reference, call)
        return reference

    return declare


def labeled(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """Both views in one tensor, and a label for each row, to call a loss of labels with."""
    return torch.cat([z1, z2]), torch.arange(2 * z1.shape[0], device=z1.device) % 5


def many_views(z1: Tensor, z2: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Three views and two local ones, to call a loss of many views with."""
    return [z1, z2, z1 + z2.roll(1, 1)], [2 * z1 - z2, z2 + z1.roll(1, 1)]


def dot(x: Tensor, y: Tensor) -> Tensor:
    """(...,), inner products of rows (..., D)."""
    return (x * y).sum(-1)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    return dot(x, y) / (dot(x, x).sqrt() * dot(y, y).sqrt())


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """Minus the squared distance."""
    return -dot(x - y, x - y)


SIMILARITIES = {"cosine": cosine, "dot": dot, "euclidean": euclidean}


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x)."""
    return torch.logaddexp(x, torch.zeros_like(x))


def cross_entropy(positive: Tensor, negatives: Tensor) -> Tensor:
    """`-log e^{s⁺} / (e^{s⁺} + Σ e^{s⁻})` of one logit s⁺ and the (M,) logits s⁻."""
    return torch.cat([positive[None], negatives]).logsumexp(0) - positive


def other_ids(key_ids: Ids, query_ids: Ids, i: int, keys: int) -> Tensor:
    """(keys,), the keys that count for query i: those of another id; all of them without ids."""
    if query_ids is None or key_ids is None:
        return torch.ones(keys, dtype=torch.bool)
    return key_ids != query_ids[i]


def similarity_logsumexp(
    query: Tensor, keys: Tensor, scale: Number, query_ids: Ids = None, key_ids: Ids = None
) -> Tensor:
    counted = (other_ids(key_ids, query_ids, i, len(keys)) for i in range(len(query)))
    return torch.stack([(scale * dot(q, keys[mask])).logsumexp(0) for q, mask in zip(query, counted, strict=True)])


def similarity_logsumexp_two_way(
    query: Tensor, keys: Tensor, scale: Number, query_ids: Ids = None, key_ids: Ids = None
) -> tuple[Tensor, Tensor]:
    rows = similarity_logsumexp(query, keys, scale, query_ids, key_ids)
    return rows, similarity_logsumexp(keys, query, scale, key_ids, query_ids)


def similarity_softplus_sum(
    query: Tensor, keys: Tensor, scale: Number, bias: Number, query_ids: Ids = None, key_ids: Ids = None
) -> Tensor:
    counted = (other_ids(key_ids, query_ids, i, len(keys)) for i in range(len(query)))
    return torch.stack([softplus(scale * dot(q, keys[m]) + bias).sum() for q, m in zip(query, counted, strict=True)])


def top_k_similarity(
    query: Tensor, keys: Tensor, k: int, query_ids: Ids = None, key_ids: Ids = None
) -> tuple[Tensor, Tensor]:
    values, index = [], []
    for i, q in enumerate(query):
        counted = other_ids(key_ids, query_ids, i, len(keys)).nonzero()[:, 0]
        similarity, order = dot(q, keys[counted]).sort(descending=True, stable=True)
        values.append(similarity[:k])
        index.append(counted[order[:k]])
    return torch.stack(values), torch.stack(index)


def two_views(z1: Tensor, z2: Tensor, ids: Ids) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each of the 2B views: its cosine with the other view of its sample, and those with its negatives (M,)."""
    both = torch.cat([z1, z2])
    ids = (torch.arange(len(z1)) if ids is None else ids).repeat(2)
    for i in range(len(both)):
        s = cosine(both[i], both)
        yield s[(i + len(z1)) % len(both)], s[ids != ids[i]]
