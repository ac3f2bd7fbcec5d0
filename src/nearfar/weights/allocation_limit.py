"""A limit to what a network may ask of memory while it is built: a card may name one of any size."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

SLACK = 1 << 24  # numbers that a network may make beside those in its file: masks, tables, a classifier left out


class AllocationLimit(TorchDispatchMode):
    """Within this, making more numbers than `limit` in all raises ValueError, before memory is asked for."""

    def __init__(self, limit: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.limit, self.made = limit, 0

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.made += _asked_for(function, args)
        if self.made > self.limit:
            raise ValueError(f"the network has more than {self.limit:,} numbers, which is more than its weights")
        return function(*args, **(kwargs or {}))


def _asked_for(function: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """How many numbers a call makes out of nothing."""
    first = args[0] if args else None
    if isinstance(first, list | tuple) and all(isinstance(size, int) for size in first):
        return prod(first)
    if function.__name__.startswith(("arange", "linspace", "eye")):
        return max((int(size) for size in args if isinstance(size, int | float) and abs(size) < 1e18), default=0)
    return 0


def limit_for(weights: Mapping[str, Tensor]) -> AllocationLimit:
    """For a network that these weights are of: initial values may be made more than once."""
    return AllocationLimit(4 * sum(x.numel() for x in weights.values()) + SLACK)
