"""Embeddings whose first numbers are embeddings, too: a loss on several widths, around any `contrast`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from nearfar.methods.method import Encoded, Step
from nearfar.methods.views import add


@dataclass(frozen=True)
class NestedDims:
    """Matryoshka representation learning: the loss is the weighted sum of the losses of the first d numbers.

    It is for methods whose loss compares the very embeddings that the user keeps, without a head that is thrown away.

    Args:
        dims: widths, the largest that of the whole embedding; none: the loss of the whole embedding alone.
        weights: of each of them; none: 1 each.
        features: of the whole embedding.

    Reference: Kusupati et al. 2022, eq. 1, https://arxiv.org/abs/2205.13147
    """

    dims: Sequence[int]
    weights: Sequence[float]
    features: int

    def __post_init__(self) -> None:
        whole = [d for d in self.dims if isinstance(d, int) and not isinstance(d, bool)]
        if not isinstance(self.dims, list | tuple) or len(whole) != len(self.dims):
            raise ValueError(f"dims is {self.dims!r}, expected a list of whole numbers, such as [{self.features}, 64]")
        if whole and (min(whole) < 1 or max(whole) != self.features or len(set(whole)) < len(whole)):
            raise ValueError(
                f"dims is {list(whole)}, expected different numbers from 1 to {self.features}, the width of the whole "
                "embedding among them"
            )
        if self.weights and (len(self.weights) != len(self.dims) or min(self.weights) < 0):
            raise ValueError(
                f"dim_weights is {list(self.weights)}, expected {len(self.dims)} numbers of at least 0: one for each "
                "of dims"
            )

    def contrast(self, contrast: Callable[[Encoded], Step], encoded: Encoded) -> Step:
        """The step of a method's `contrast`, with the loss of all widths; the rest is that of the whole embedding.

        Args:
            encoded: embeddings to be cut are called z1, z2, ...; the rest stays as it is.
        """
        if not self.dims:
            return contrast(encoded)
        names = [name for name in encoded if re.fullmatch(r"z\d+", name)]
        weights = self.weights or [1.0] * len(self.dims)
        losses: list[Tensor] = []
        whole: Step | None = None
        for dim, weight in sorted(zip(self.dims, weights, strict=True), reverse=True):
            step = contrast({**encoded, **{name: encoded[name][:, :dim] for name in names}})
            whole = whole or step
            losses.append(weight * step.loss)
        assert whole is not None
        log = {"info_nce": whole.loss.detach()} if whole.candidates else {}  # what the bound is of
        return replace(whole, loss=add(losses), log={**whole.log, **log})
