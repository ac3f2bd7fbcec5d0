"""Weights that processes hold in parts: torch's `fully_shard`, and how a method is cut into the units that it gathers.

Each process keeps its part of every weight, and with it of its gradient and of the optimiser's state. A unit's weights
are whole on a process while the unit is at work, forward or backward, and its gradients are averaged over the processes
as those of DDP are. Scalars, such as a learned temperature, cannot be cut: they stay whole everywhere.

torch's modules of it are imported where they are used: that takes a second, which a run of one process need not wait.
"""

import copy
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nearfar.nn.shard import is_cut, local, sum_of_all

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

M = TypeVar("M", bound=nn.Module)
_STACKS = (nn.Sequential, nn.ModuleList)


def shard(method: nn.Module, mesh: "DeviceMesh") -> None:
    """Cut the weights of a method over the processes of a mesh, in place; buffers stay whole.

    A unit is each block of a stack (`blocks`), and the method itself with all the rest, which is whole while `encode`
    and `contrast` run: whatever these use of it, by calling modules or by name.

    Args:
        method: with `encode` and `contrast`; the same weights on every process.
        mesh: of one dimension.
    """
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    scalars = {p for p in method.parameters() if p.ndim == 0}
    for block in blocks(method):
        fully_shard(block, mesh=mesh, reshard_after_forward=True, ignored_params=scalars)
    fully_shard(method, mesh=mesh, reshard_after_forward=False, ignored_params=scalars)  # contrast follows encode
    for name in ("encode", "contrast"):
        register_fsdp_forward_method(method, name)
    # What encode gives may be a view: no one writes to it.
    warnings.filterwarnings("ignore", rf".*\(FSDP{type(method).__name__}\) returned a view tensor")


def blocks(module: nn.Module) -> list[nn.Module]:
    """The modules that stand in a stack of their kind, inner ones first: layers of a Transformer, blocks of a ResNet.

    A stack is an `nn.Sequential` or `nn.ModuleList` of several modules of one class, which have modules of their own
    and are no stacks themselves. Single layers are no blocks: a message for each would cost more than it spares.

    >>> block = lambda: nn.TransformerEncoderLayer(8, 2, 16)
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.Sequential(block(), block()), nn.Linear(8, 4))
    >>> [type(each).__name__ for each in blocks(network)]
    ['TransformerEncoderLayer', 'TransformerEncoderLayer']
    """
    found: dict[nn.Module, None] = {}
    for stack in module.modules():
        each = list(stack.children())
        kinds = {type(part) for part in each}
        if isinstance(stack, _STACKS) and len(each) > 1 and len(kinds) == 1 and not kinds & set(_STACKS):
            found |= dict.fromkeys(
                part for part in each if any(part.children()) and any(True for _ in part.parameters())
            )
    return list(reversed(found))


def at_rest(module: nn.Module) -> None:
    """Every process has its parts alone, as between steps: a unit that ran without a backward pass may be whole yet."""
    from torch.distributed.fsdp import FSDPModule

    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def average_scalars(module: nn.Module) -> None:
    """Give the weights that are not cut the mean of the processes' gradients, as all others have it by now."""
    gradients = [p.grad for p in module.parameters() if p.grad is not None and not is_cut(p)]
    if gradients:
        mean = sum_of_all(torch.stack(gradients)) / dist.get_world_size()
        torch._foreach_copy_(gradients, list(mean))


def whole(state: Any, *, keep: bool = True) -> Any:
    """A state dict with whole tensors in it in place of cut ones, on the CPU; every process must call it.

    Args:
        state: tensors in dicts and lists, whatever else is in them.
        keep: whether this process needs them; else None stands for each that was cut.
    """
    if isinstance(state, Tensor) and is_cut(state):
        tensor: Tensor = state.full_tensor()  # type: ignore[attr-defined]
        return tensor.to("cpu", copy=True) if keep else None  # a copy has no padding of uneven parts, and no file has
    if isinstance(state, dict):
        found = copy.copy(state)  # with what torch notes beside the values
        for name, value in state.items():
            found[name] = whole(value, keep=keep)
        return found
    return [whole(value, keep=keep) for value in state] if isinstance(state, list) else state


def cut_as(weights: Iterable[Tensor], state: dict[str, Any]) -> dict[str, Any]:
    """An optimiser's whole state, as its `state_dict` has it, cut as its weights are: every process takes its part.

    Args:
        weights: of the optimiser, in the order of its groups.
    """
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    of = dict(zip(numbers, weights, strict=True))
    parts = {
        number: {name: _cut(value, of[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": parts}


def _cut(value: Any, weight: Tensor) -> Any:
    if not is_cut(weight) or not isinstance(value, Tensor) or value.shape != weight.shape:
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(weight, DTensor)
    here = value.to(weight.device)
    part = distribute_tensor(here, weight.device_mesh, weight.placements, src_data_rank=None)  # all have the same
    return part.clone()  # else all of it stayed in memory


def hollow(module: M) -> M:
    """A copy without the values of its parameters, which take no memory: to be filled by `filled`."""
    empty = {id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in module.parameters()}
    return copy.deepcopy(module, dict(empty))  # found there, they are not copied


def filled(empty: M, state: dict[str, Tensor]) -> M:
    """A network as it was before it was cut, with these weights, which are not copied."""
    network = copy.deepcopy(empty)
    network.load_state_dict(state, assign=True)
    return network


def bytes_held(tensors: Iterable[Tensor]) -> int:
    """What this process has of them."""
    return sum(local(x).nbytes for x in tensors)
