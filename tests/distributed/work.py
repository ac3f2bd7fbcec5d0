"""What the processes of the tests do, in a module that they can import."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nearfar import losses
from nearfar.distributed.gather import gather_rows
from nearfar.distributed.grad_cache import encode_in_chunks, equal_chunks
from nearfar.distributed.ops import full_batch_ops
from nearfar.distributed.ring import RingBackend, global_mean
from nearfar.distributed.variants import Subject, VariantResult, run_shared_variants
from nearfar.losses.engine.backends import use_backend
from nearfar.methods import Batch, Method, Step
from nearfar.methods.simclr import SimCLR
from nearfar.nn.ema import ema_update
from nearfar.nn.norm import count_as_one_batch
from nearfar.nn.shard import Shard, shard_of

LOSSES: dict[str, Callable[..., Tensor]] = {
    "info_nce": lambda a, b, t, ids: losses.info_nce(a, b, temperature=t, ids=ids),
    "dot": lambda a, b, t, ids: losses.info_nce(a, b, temperature=t, ids=ids, similarity="dot"),
    "nt_xent": lambda a, b, t, ids: losses.nt_xent(a, b, temperature=t, ids=ids),
    "nt_xent_views": lambda a, b, t, ids: losses.nt_xent_views(
        [a, b, a + b.roll(1, 1)], [a - b, b + a.roll(1, 1)], temperature=t, ids=ids
    ),
    "decoupled": lambda a, b, t, ids: losses.decoupled(a, b, temperature=t, ids=ids),
    "symmetric": lambda a, b, t, ids: losses.symmetric_info_nce(a, b, temperature=t, ids=ids),
    "sigmoid": lambda a, b, t, ids: losses.sigmoid_pairs(a, b, logit_scale=1 / t, logit_bias=3 * t, ids=ids),
}


def rows(total: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(total)
    z1, z2 = torch.randn(2, total, 5, generator=generator, dtype=torch.float64)
    ids = torch.arange(total)
    ids[-1] = ids[0]  # shared by the first and the last process
    return z1, z2, ids


def ring_and_gather(sizes: list[int], say: Any) -> dict[tuple[str, str], list[Tensor]]:
    """Of each loss by each way: value, the gradients of all rows, and that of the temperature, as DDP averages them."""
    rank, world = dist.get_rank(), dist.get_world_size()
    shard = shard_of(sizes[rank])
    found = {}
    for name, loss in LOSSES.items():
        for way in ("gather", "ring"):
            z1, z2, ids = (shard.select(x).clone() for x in rows(sum(sizes)))
            z1.requires_grad_(), z2.requires_grad_()
            t = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
            if way == "gather":
                value = loss(gather_rows(z1, shard), gather_rows(z2, shard), t, shard.gather(ids))
            else:
                with losses.tile_size(3), use_backend(RingBackend(shard)):
                    value = global_mean(loss(z1, z2, t, ids), shard)
            value.backward()
            assert z1.grad is not None and z2.grad is not None and t.grad is not None
            dist.all_reduce(t.grad)
            slopes = [shard.gather(z.grad) / world for z in (z1, z2)]
            found[name, way] = [value.detach(), *slopes, t.grad / world]
    return found


def ring_with_no_rows(say: Any) -> str:
    shard = Shard(dist.get_rank(), (3, 0))
    try:
        RingBackend(shard)
    except ValueError as error:
        return str(error)
    return "nothing was said"


def normalised(network: nn.Module, x: Tensor, weight: Tensor, sizes: list[int], say: Any) -> dict[str, Tensor]:
    """A network with batch-norm on shares: outputs of all, gradients of inputs and weights summed, and its state."""
    shard = shard_of(sizes[dist.get_rank()])
    own = shard.select(x).clone().requires_grad_()
    with full_batch_ops(shard):
        y = network(own)
    (y * shard.select(weight)).sum().backward()
    found = {"y": shard.gather(y), "x": shard.gather(own.grad)}  # type: ignore[arg-type]
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        found[name] = parameter.grad
    return found | dict(network.named_buffers())


def cached(network: nn.Module, x: Tensor, weight: Tensor, sizes: list[int], say: Any) -> list[list[Tensor]]:
    """Output, gradients and state where the share is encoded in parts: with caching, and in one graph."""
    shard, found = shard_of(sizes[dist.get_rank()]), []
    parts = equal_chunks(shard.count, 2, max(sizes))
    for caching in (True, False):
        net = copy.deepcopy(network)

        def encode(rows: slice, net: nn.Module = net) -> dict[str, Tensor]:
            with full_batch_ops(shard_of(rows.stop - rows.start)):
                return {"z": net(shard.select(x)[rows])}

        if caching:
            z = encode_in_chunks(encode, net, parts)["z"]
        else:
            with count_as_one_batch(net, len(parts)):
                z = torch.cat([encode(rows)["z"] for rows in parts])
        of_all = gather_rows(z, shard)
        (of_all.sin() * weight).sum().backward()
        slopes = [p.grad for p in net.parameters() if p.grad is not None]
        for slope in slopes:
            dist.all_reduce(slope)
        found.append([of_all.detach(), *slopes, *net.buffers()])
    return found


def gathered_kinds(sizes: list[int], say: Any) -> list[Tensor]:
    shard = shard_of(sizes[dist.get_rank()])
    every = [torch.arange(12).view(6, 2), torch.arange(6) % 2 == 0, torch.randn(6, 1, 3).half()]
    every[2] = torch.arange(18).view(6, 1, 3).half()
    return [gather_rows(shard.select(x), shard) for x in every]


def walks_of_wrong(given: dict[str, tuple[Subject, Any]], say: Any) -> dict[str, dict[str, VariantResult]]:
    return {name: run_shared_variants([subject], how, say)[0] for name, (subject, how) in given.items()}


# Gathers and methods with the errors that circulate.


def detached_gather(encoded: dict[str, Tensor], shard: Shard) -> dict[str, Tensor]:
    """The rows of others come without a gradient, and one's own with theirs: as `all_gather` is often used."""
    found = {}
    for name, x in encoded.items():
        every = shard.gather(x)
        found[name] = torch.cat([every[: shard.first], x, every[shard.first + shard.count :]])
    return found


def gather_without_factor(encoded: dict[str, Tensor], shard: Shard) -> dict[str, Tensor]:
    return {name: x if not x.requires_grad else _Plain.apply(x, shard) for name, x in encoded.items()} | {
        name: shard.gather(x) for name, x in encoded.items() if not x.requires_grad
    }


class _Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return shard.gather(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.shard.select(grad), None


class WithoutOffset(SimCLR):
    """Numbers its rows itself, from 0 on every process."""

    def encode(self, batch: Batch) -> dict[str, Tensor]:
        return {**super().encode(batch), "ids": torch.arange(len(batch.index))}


class SameObject(Method):
    """BYOL whose target is the network itself."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.target = encoder

    def encode(self, batch: Batch) -> dict[str, Tensor]:
        p = self.encoder(batch.views[0])
        with torch.no_grad():
            t = self.target(batch.views[1])
        return {"p": p, "t": t}

    def contrast(self, encoded: dict[str, Tensor]) -> Step:
        return Step(losses.cosine_regression(encoded["p"], encoded["t"]), encoded["p"].detach(), encoded["t"])

    def after_step(self, progress: float) -> None:
        if self.target is not self.encoder:
            ema_update(self.target, self.encoder, 0.99)


def grouped_texts(sizes: list[int], tokens: Tensor, encoder: nn.Module, say: Any) -> Tensor:
    """Features of all rows, each process its own, with the dropout of the full batch."""
    shard = shard_of(sizes[dist.get_rank()])
    torch.manual_seed(3)
    with full_batch_ops(shard):
        h = encoder(shard.select(tokens))
    return shard.gather(h)
