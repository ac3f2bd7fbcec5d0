"""One training step on a batch that several processes share, and processes of this machine to try it with."""

import os
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

from nearfar.child_process import safe_path
from nearfar.distributed.gather import gather
from nearfar.distributed.ops import full_batch_ops
from nearfar.distributed.ring import RingBackend, global_mean
from nearfar.losses.engine.backends import use_backend
from nearfar.nn.shard import Shard

GatherMode = Literal["gather", "ring"]
Gather = Callable[[dict[str, Tensor], Shard], dict[str, Tensor]]


class Contrastive(Protocol):
    """The part of a method that is needed here; `nearfar.methods.Method` has it."""

    def encode(self, batch: Any) -> dict[str, Tensor]: ...
    def contrast(self, encoded: dict[str, Tensor]) -> Any: ...


def encode_shard(method: Contrastive, batch: Any, shard: Shard | None) -> dict[str, Tensor]:
    """`encode` of this process' rows, with the BatchNorm statistics and the dropout of the full batch."""
    with full_batch_ops(shard):
        return method.encode(batch)


def contrast_shards(
    method: Contrastive, encoded: dict[str, Tensor], shard: Shard | None, *, by: GatherMode = "gather"
) -> Any:
    """`contrast` over the rows of all processes, given the outputs of `encode` on this one.

    All processes get the same loss, that of one process with the full batch. Averaged over the processes, as DDP does,
    its gradients are those of one process.

    Args:
        shard: None: this process has the full batch.
        by: "gather" copies all rows to each process; "ring" sends keys around, for methods with `ring = True`.
    """
    if shard is None:
        return method.contrast(encoded)
    if by == "gather":
        return method.contrast(gather(encoded, shard))
    check_ring(method)
    with full_batch_ops(shard), use_backend(RingBackend(shard)):
        step = method.contrast(encoded)
    return replace(step, loss=global_mean(step.loss, shard), log=_mean_log(step.log, shard))


def _mean_log(log: dict[str, Tensor], shard: Shard) -> dict[str, Tensor]:
    if not log:
        return log
    means = global_mean(torch.stack([x.detach().float() for x in log.values()]), shard)
    return dict(zip(log, means, strict=True))


def check_ring(method: Contrastive) -> None:
    """Raise if the method's loss is more than a mean over rows of sums over the batch."""
    if not getattr(method, "ring", False):
        raise ValueError(
            f"gather is 'ring', which {type(method).__name__} does not support: the ring is for losses that compare "
            "each sample with the others of the batch, without a queue, memory bank or labels; set --gather gather"
        )


class ProcessError(Exception):
    """A process failed; the message says which, and why."""


def run_in_processes(
    count: int,
    function: Callable[..., Any],
    *arguments: Any,
    said: Callable[[str], None] | None = None,
    seconds: float = 600.0,
) -> list[Any]:
    """Results of `function(*arguments, say)` in `count` new processes of this machine, connected by gloo.

    Args:
        function: at the top level of a module; a script must call this under `if __name__ == "__main__"`.
        arguments: anything that pickle can handle; each process gets its own copy.
        said: called with what rank 0 reports by `say(text)`.
        seconds: without a report, after which it is given up.
    """
    with safe_path():
        messages = multiprocessing.get_context("spawn").SimpleQueue()  # starts Python's resource tracker
    with tempfile.TemporaryDirectory() as folder:
        torch.save((function, arguments), Path(folder) / "task")
        task = (count, folder, messages, seconds)
        with safe_path():
            children: Any = spawn(_work, task, nprocs=count, join=False, daemon=True)
        last = time.monotonic()
        try:
            while not children.join(timeout=0.5):
                while not messages.empty():
                    text, last = messages.get(), time.monotonic()
                    if said is not None:
                        said(text)
                if time.monotonic() - last > seconds:
                    raise ProcessError(f"{count} processes did not finish within {seconds:.0f} s")
        except ProcessRaisedException as error:
            raise ProcessError(str(error).strip().splitlines()[-1].partition(": ")[2]) from None
        except ProcessExitedException as error:
            raise ProcessError(f"process {error.error_index} of {count} died (exit {error.exit_code})") from None
        finally:
            for child in children.processes:
                child.terminate()
        # written by our own processes
        return [torch.load(Path(folder) / f"result-{rank}", weights_only=False) for rank in range(count)]


def _work(rank: int, count: int, folder: str, messages: Any, seconds: float) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if Path("/System").exists() else "lo")
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(str(Path(folder) / "store"), count),  # type: ignore[attr-defined]
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=seconds),
        )
        function, arguments = torch.load(Path(folder) / "task", weights_only=False)
        found = function(*arguments, lambda text: messages.put(text) if rank == 0 else None)
        torch.save(found, Path(folder) / f"result-{rank}")
        dist.barrier()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        words = " ".join(str(error).split()) or type(error).__name__
        place = f"{Path(where.filename).name}:{where.lineno}"
        raise ProcessError(f"process {rank} of {count}: {words} ({place})") from None
    finally:
        with suppress(Exception):
            dist.destroy_process_group()
