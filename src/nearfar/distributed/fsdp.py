"""Sharded weights (FSDP): torch's `fully_shard`, and how a method is divided into the units that it gathers.

Each process keeps its part of every weight, gradient and optimizer state. The weights of a unit are gathered on each
process while the unit runs, forward or backward, and its gradients are averaged over the processes, as by DDP. Scalars,
such as a learned temperature, cannot be sharded: every process has them.

torch's modules for this are imported where they are used: the import takes a second.
"""

import copy
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nearfar.nn.shard import all_reduce_sum, is_sharded

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

M = TypeVar("M", bound=nn.Module)
_STACKS = (nn.Sequential, nn.ModuleList)


def shard_method(method: nn.Module, mesh: "DeviceMesh") -> None:
    """Shard the weights of a method over the processes of a mesh, in place; buffers are not sharded.

    Units are the blocks of `find_blocks`, and the method itself with all other weights, which are gathered while
    `encode` and `contrast` run.

    Args:
        method: with `encode` and `contrast`; the same weights on every process.
        mesh: of one dimension.
    """
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    scalars = {p for p in method.parameters() if p.ndim == 0}
    for block in find_blocks(method):
        fully_shard(block, mesh=mesh, reshard_after_forward=True, ignored_params=scalars)
    fully_shard(method, mesh=mesh, reshard_after_forward=False, ignored_params=scalars)  # contrast follows encode
    for name in ("encode", "contrast"):
        register_fsdp_forward_method(method, name)
    # Outputs of encode may be views: nothing writes to them. The class is now called FSDP...
    warnings.filterwarnings("ignore", rf".*\({type(method).__name__}\) returned a view tensor")


def find_blocks(module: nn.Module) -> list[nn.Module]:
    """Repeated modules, inner ones first: layers of a Transformer, blocks of a ResNet.

    They are the children of an `nn.Sequential` or `nn.ModuleList` with several children of one class, which have
    children themselves. Single layers are no blocks: communication for each would cost more than it saves.

    >>> block = lambda: nn.TransformerEncoderLayer(8, 2, 16)
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.Sequential(block(), block()), nn.Linear(8, 4))
    >>> [type(each).__name__ for each in find_blocks(network)]
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


def reshard(module: nn.Module) -> None:
    """Free gathered weights, as between steps: a unit that ran without a backward pass still has them."""
    from torch.distributed.fsdp import FSDPModule

    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def average_scalars(module: nn.Module) -> None:
    """Average the gradients of the weights that are not sharded; FSDP has averaged the others."""
    gradients = [p.grad for p in module.parameters() if p.grad is not None and not is_sharded(p)]
    if gradients:
        mean = all_reduce_sum(torch.stack(gradients)) / dist.get_world_size()
        torch._foreach_copy_(gradients, list(mean))


def full_state(state: Any, *, keep: bool = True) -> Any:
    """A state dict with full tensors, on the CPU, in place of sharded ones. A collective: all processes must call it.

    Args:
        state: tensors in dicts and lists, with anything else beside them.
        keep: whether this process needs the tensors; if not, it gets None for each sharded one.
    """
    if isinstance(state, Tensor) and is_sharded(state):
        tensor: Tensor = state.full_tensor()  # type: ignore[attr-defined]
        return tensor.to("cpu", copy=True) if keep else None  # a copy, without the padding of uneven parts
    if isinstance(state, dict):
        found = copy.copy(state)  # with the metadata that torch attaches
        for name, value in state.items():
            found[name] = full_state(value, keep=keep)
        return found
    return [full_state(value, keep=keep) for value in state] if isinstance(state, list) else state


def shard_optimizer_state(weights: Iterable[Tensor], state: dict[str, Any]) -> dict[str, Any]:
    """This process' part of an optimizer's full `state_dict`, sharded like its weights.

    Args:
        weights: of the optimizer, in the order of its groups.
    """
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    of = dict(zip(numbers, weights, strict=True))
    parts = {
        number: {name: _shard_like(value, of[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": parts}


def _shard_like(value: Any, weight: Tensor) -> Any:
    if not is_sharded(weight) or not isinstance(value, Tensor) or value.shape != weight.shape:
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(weight, DTensor)
    here = value.to(weight.device)
    part = distribute_tensor(here, weight.device_mesh, weight.placements, src_data_rank=None)  # all ranks have it
    return part.clone()  # a view would keep the full tensor in memory


def meta_copy(module: M) -> M:
    """A copy with its parameters on the meta device, without memory; `materialize` gives them values."""
    empty = {id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in module.parameters()}
    return copy.deepcopy(module, dict(empty))  # what is in the memo is not copied


def materialize(empty: M, state: dict[str, Tensor]) -> M:
    """The unsharded network of a `meta_copy`, with these weights, which are not copied."""
    network = copy.deepcopy(empty)
    network.load_state_dict(state, assign=True)
    return network
