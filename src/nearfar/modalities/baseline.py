"""What samples tell before anything is learned: raw pixels, log-mels, tf-idf, as encoders to compare with."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor


class Baseline:
    """Prepared samples to features, without learned weights. What one cannot do is None.

    Attributes:
        protocols: those worth measuring it by; None: all.
        origin: what it is, for the record.
        prepare: raw samples to its input; None: as of the baseline "raw".
        frames: prepared input to (B, L, D) frames in time, and (B, L), False behind the end.
        embed_texts: texts to (B, F).
        sparse_rows: a data set and (K,) row numbers to (K, F) sparse features, in place of `__call__`.
        cosines: texts and as many others to (P,), in place of the cosines of `embed_texts`.
    """

    protocols: Sequence[str] | None = None
    origin: str = ""
    prepare: Callable[[Tensor], Tensor] | None = None
    frames: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
    embed_texts: Callable[[Sequence[str]], Tensor] | None = None
    sparse_rows: Callable[[Any, Tensor], Tensor] | None = None
    cosines: Callable[[Sequence[str], Sequence[str]], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """(B, ...) prepared samples to (B, F)."""
        raise NotImplementedError
