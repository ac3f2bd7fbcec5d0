"""A loss of the rows of one process only, where there are several, is another loss: it warns, once."""

import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nearfar.losses.engine.backends import current_backend

_NEARBY = 100  # nodes of the graph that are searched for somebody else's gather


class _Known:
    """Whether rows were gathered in this process, or it was warned that they were not."""

    done = False


def note_gathered() -> None:
    """Rows of all processes were put together: no warning is needed."""
    _Known.done = True


def warn_if_not_gathered(z: Tensor) -> None:
    """Warn if rows that are compared with each other are those of one process of several, and nothing was gathered.

    Silent without a gradient, within `torch.compile`, in a ring, and where a gather of another library is in the graph.
    """
    if _Known.done or torch.compiler.is_compiling() or not dist.is_available() or not dist.is_initialized():
        return
    if not z.requires_grad or current_backend() is not None or (processes := dist.get_world_size()) == 1:
        return
    _Known.done = True
    if _has_gather(z):
        return
    warnings.warn(
        f"the loss compares {z.shape[0]} rows of 1 process of {processes} with each other only, expected the rows of "
        "all: put nearfar.distributed.gather_rows around each tensor that the loss takes, or call the loss by "
        "nearfar.distributed.ring",
        stacklevel=_callers_level(),
    )


def _callers_level() -> int:
    """How many frames up `warnings.warn` finds who called the loss."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("nearfar.losses"):
        level, frame = level + 1, frame.f_back
    return level


def _has_gather(z: Tensor) -> bool:
    """Whether a gather over processes is among the operations that z comes from."""
    nodes, seen = [z.grad_fn], set[Any]()
    while nodes and len(seen) < _NEARBY:
        node = nodes.pop(0)
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name().lower()
        if "gather" in name and name != "gatherbackward0":  # torch.gather takes entries of one tensor
            return True
        nodes += [parent for parent, _ in node.next_functions]
    return False
