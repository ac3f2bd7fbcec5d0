"""A few training steps with the weights in parts and with whole ones, in processes, and what must be the same."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from nearfar.distributed import fsdp
from nearfar.distributed.grad_cache import encode_in_chunks, equal_chunks
from nearfar.distributed.processes import contrast_shards, encode_shard
from nearfar.distributed.variants import take_rows
from nearfar.methods import METHODS, Batch, Method
from nearfar.methods.byol import BYOL
from nearfar.methods.simcse import SimCSE
from nearfar.nn.shard import global_norm, is_sharded, local, shard_of
from nearfar.nn.text import TextEncoder


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(7, 7), nn.BatchNorm1d(7)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.layer(x)).tanh()


# Of one kind each: blocks and a momentum network, an embedding that another head reads, scalars.
SUBJECTS: dict[str, Callable[[], Method]] = {
    "byol": lambda: BYOL(nn.Sequential(nn.Linear(5, 7), nn.Sequential(Block(), Block())), features=7, dim=3, hidden=5),
    "simcse": lambda: SimCSE(
        TextEncoder(40, 8, width=16, layers=2, heads=2, dropout=0.1), features=16, mlm=0.1, mask_rate=0.4
    ),
    "siglip": lambda: METHODS["siglip"].toy()[0],
}


def local_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(local(x).nbytes for x in tensors)


def made(name: str) -> Method:
    torch.manual_seed(0)
    return SUBJECTS[name]().double().train()


def batch_of(name: str) -> Batch:
    """11 samples: no number of processes has equal shares."""
    if name == "byol":
        views = list(torch.randn(2, 11, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
        return Batch(views, torch.arange(11), torch.arange(11))
    return METHODS[name].toy(rows=11)[1][0]


def own_rows(batch: Batch) -> Batch:
    rows = torch.arange(len(batch.index)).tensor_split(dist.get_world_size())[dist.get_rank()]
    own: Batch = take_rows(batch, slice(int(rows[0]), int(rows[-1]) + 1))
    return own


def mesh() -> Any:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def optimizer_of(method: Method, name: str) -> torch.optim.Optimizer:
    weights = [p for p in method.parameters() if p.requires_grad]
    if name == "sgd":
        return torch.optim.SGD(weights, lr=0.05, momentum=0.9)
    # With the usual eps a gradient that is 0 but for rounding would move its weight by as much as any other.
    return torch.optim.AdamW(weights, lr=0.05, eps=1e-3, foreach=name == "foreach")


def trained(name: str, cut: bool, by: str, most: int = 0, steps: int = 2) -> dict[str, Any]:
    """A few steps as the trainer takes them, on a share of the batch; losses, norms, weights and optimizer's state.

    Args:
        most: rows that are encoded at a time, with gradient caching; 0: all.
    """
    method, batch = made(name), own_rows(batch_of(name))
    if cut:
        fsdp.shard_method(method, mesh())
    optimizer = optimizer_of(method, by)
    shard = shard_of(len(batch.index))
    parts = equal_chunks(shard.count, most or max(shard.sizes), max(shard.sizes))
    losses, norms = [], []
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        later: list[Any] = []

        def encode(rows: slice) -> dict[str, Tensor]:
            some = take_rows(batch, rows)
            return encode_shard(method, some, shard if len(parts) == 1 else shard_of(len(some.index)))

        encoded = encode_in_chunks(encode, method, parts, deferred=later if cut else None)
        made_step = contrast_shards(method, encoded, shard)
        made_step.loss.backward()
        for rest in later:
            rest()
        average(method, cut)
        norms.append(global_norm([p.grad for p in method.parameters() if p.grad is not None]))
        optimizer.step()
        method.after_step((step + 1) / steps)
        losses.append(made_step.loss.detach())
        losses += [made_step.log["ema_distance"]] if "ema_distance" in made_step.log else []
    return {
        "losses": torch.stack(losses),
        "norms": torch.stack(norms),
        "weights": copy.deepcopy(fsdp.full_state(method.state_dict())),
        "optimizer": copy.deepcopy(fsdp.full_state(optimizer.state_dict())),
        "held": local_bytes(method.parameters()),
        "held in state": local_bytes(
            x for state in optimizer.state.values() for x in state.values() if isinstance(x, Tensor) and x.ndim
        ),
        "again": again(method, optimizer, by),
    }


def average(method: Method, cut: bool) -> None:
    """As the trainer does before a step, or as DDP does."""
    if cut:
        fsdp.reshard(method)
        fsdp.average_scalars(method)
        return
    for p in method.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def again(method: Method, optimizer: torch.optim.Optimizer, by: str) -> dict[str, Tensor]:
    """The weights after one more step of an optimizer that is made anew and given the whole state of this one."""
    whole = fsdp.full_state(optimizer.state_dict())
    other = optimizer_of(method, by)
    other.load_state_dict(
        fsdp.shard_optimizer_state([p for group in other.param_groups for p in group["params"]], whole)
    )
    for x in (x for state in other.state.values() for x in state.values() if is_sharded(x)):
        assert local(x).untyped_storage().nbytes() == local(x).nbytes  # no more than the part stays in memory
    other.step()  # by the gradients that are still there
    weights: dict[str, Tensor] = fsdp.full_state(method.state_dict())
    return weights


CASES = [  # method, optimizer, rows encoded at a time
    ("byol", "sgd", 3),
    ("simcse", "adamw", 3),
    ("siglip", "foreach", 0),  # cut weights and scalars in one list, as on a GPU
]


def both_ways(cases: list[tuple[str, str, int]], say: object) -> list[list[dict[str, Any]]]:
    return [[trained(name, cut, by, most) for cut in (False, True)] for name, by, most in cases]


def assert_trained_alike(ranks: list[list[list[dict[str, Any]]]]) -> None:
    """Loss, norm of the gradient, weights, momentum networks and the optimizer's state; with caching and without."""
    for found in ranks:
        for case, (whole, parts) in zip(CASES, found, strict=True):
            assert close(parts["losses"], whole["losses"]) and close(parts["norms"], whole["norms"]), case
            for what in ("weights", "again"):
                assert parts[what].keys() == whole[what].keys()
                for name, x in whole[what].items():
                    assert parts[what][name].shape == x.shape and close(parts[what][name], x), (case, what, name)
                    assert parts[what][name].untyped_storage().nbytes() == x.nbytes  # no padding in a file
            a, b = parts["optimizer"], whole["optimizer"]
            assert a["param_groups"] == b["param_groups"] and a["state"].keys() == b["state"].keys()
            for number, state in b["state"].items():
                assert all(close(a["state"][number][name], x) for name, x in state.items()), (case, number)


def close(seen: Tensor, expected: Tensor) -> bool:
    return torch.allclose(seen.double(), expected.double(), rtol=1e-7, atol=1e-10, equal_nan=True)


def assert_parts_held(ranks: list[list[list[dict[str, Any]]]]) -> None:
    """Of each weight ceil(rows / processes) rows, what is left for the last, and scalars everywhere."""
    for rank, found in enumerate(ranks):
        for (name, by, _), (whole, parts) in zip(CASES, found, strict=True):
            method = made(name)
            shard = {p: held(p, rank, 2) for p in method.parameters()}
            assert parts["held"] == 8 * sum(shard.values())
            assert whole["held"] == 8 * sum(p.numel() for p in method.parameters())
            of_state = 8 * sum(n for p, n in shard.items() if p.requires_grad and p.ndim)
            assert parts["held in state"] == (of_state if by == "sgd" else 2 * of_state)
            assert parts["held in state"] <= 0.6 * whole["held in state"]


def held(p: Tensor, rank: int, world: int) -> int:
    if p.ndim == 0:
        return 1
    rows = -(-len(p) // world)
    return max(0, min(len(p) - rank * rows, rows)) * (p.numel() // len(p))
