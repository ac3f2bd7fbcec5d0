"""One training step on a batch that several processes share, and processes of this machine to try it with."""

import io
import os
import queue
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor

from nearfar.distributed.gather import gather
from nearfar.distributed.ops import together
from nearfar.distributed.ring import Ring, mean_of_all
from nearfar.losses.engine.backends import sums_by
from nearfar.nn.shard import Share

Gathering = Literal["gather", "ring"]
Gather = Callable[[dict[str, Tensor], Share], dict[str, Tensor]]


class Contrastive(Protocol):
    """What is asked of a method here; `nearfar.methods.Method` is one."""

    def encode(self, batch: Any) -> dict[str, Tensor]: ...
    def contrast(self, encoded: dict[str, Tensor]) -> Any: ...


def encode_share(method: Contrastive, batch: Any, share: Share | None) -> dict[str, Tensor]:
    """`encode` of the rows of this process, its statistics and its chance those of the whole batch."""
    with together(share):
        return method.encode(batch)


def contrast_share(
    method: Contrastive, encoded: dict[str, Tensor], share: Share | None, *, by: Gathering = "gather"
) -> Any:
    """`contrast` across the rows of all processes, given what `encode` made of this one's.

    The loss is the same on all processes, that of one with the whole batch. Averaged over the processes, as DDP does,
    its gradients are those of one process.

    Args:
        share: None: this process has the whole batch.
        by: "gather" brings all rows to each process; "ring" lets keys travel, for methods that say `ring = True`.
    """
    if share is None:
        return method.contrast(encoded)
    if by == "gather":
        return method.contrast(gather(encoded, share))
    check_ring(method)
    with together(share), sums_by(Ring(share)):
        step = method.contrast(encoded)
    return replace(step, loss=mean_of_all(step.loss, share), log=_mean_log(step.log, share))


def _mean_log(log: dict[str, Tensor], share: Share) -> dict[str, Tensor]:
    if not log:
        return log
    means = mean_of_all(torch.stack([x.detach().float() for x in log.values()]), share)
    return dict(zip(log, means, strict=True))


def check_ring(method: Contrastive) -> None:
    """Refuse a ring to a method whose loss is no mean over rows of sums over the batch."""
    if not getattr(method, "ring", False):
        raise ValueError(
            f"gather is 'ring', which {type(method).__name__} cannot use: its loss is more than each row against the "
            "batch (a queue, a bank, statistics of features, labels); set gather to 'gather'"
        )


class Outcome(Exception):  # noqa: N818  raised in the parent with the words of the child
    """A process failed; says which, and how."""


def in_processes(
    count: int,
    function: Callable[..., Any],
    *arguments: Any,
    said: Callable[[str], None] | None = None,
    seconds: float = 600.0,
) -> list[Any]:
    """What `function(*arguments, say)` returns in each of `count` new processes of this machine, joined by gloo.

    Args:
        function: of a module, so that the processes find it; in a script, call from under `if __name__ == "__main__"`.
        arguments: what pickle can carry.
        said: is given what the first process says by `say(text)`.
        seconds: after which it is given up.
    """
    context = multiprocessing.get_context("spawn")
    heard = context.Queue()
    file = io.BytesIO()
    torch.save((function, arguments), file)  # as bytes: tensors would be shared, and written to, by all
    with tempfile.TemporaryDirectory() as folder:
        given = (count, str(Path(folder) / "meeting"), file.getvalue(), heard, seconds)
        children = [context.Process(target=_work, args=(rank, *given), daemon=True) for rank in range(count)]
        for child in children:
            child.start()
        try:
            return _results(children, heard, said, seconds)
        finally:
            for child in children:
                child.join(timeout=0.1 if child.exitcode is None else None)
                if child.is_alive():
                    child.terminate()
                    child.join()


def _results(children: Sequence[Any], heard: Any, said: Callable[[str], None] | None, seconds: float) -> list[Any]:
    found: dict[int, Any] = {}
    waited = 0.0
    while len(found) < len(children):
        try:
            kind, rank, content = heard.get(timeout=1.0)
        except queue.Empty:
            waited += 1.0
            dead = [r for r, c in enumerate(children) if c.exitcode not in (None, 0) and r not in found]
            if dead:
                raise Outcome(
                    f"process {dead[0]} of {len(children)} died (exit {children[dead[0]].exitcode})"
                ) from None
            if waited > seconds:
                raise Outcome(f"{len(children)} processes did not finish within {seconds:.0f} s") from None
            continue
        if kind == "failed":
            raise Outcome(f"process {rank} of {len(children)}: {content}")
        if kind == "said" and said is not None:
            said(content)
        if kind == "done":
            found[rank] = torch.load(io.BytesIO(content), weights_only=False)  # from our own child
    return [found[rank] for rank in range(len(children))]


def _work(
    rank: int,
    count: int,
    meeting: str,
    task: bytes,
    heard: Any,
    seconds: float,
) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(meeting, count),  # type: ignore[attr-defined]
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=seconds),
        )
        function, arguments = torch.load(io.BytesIO(task), weights_only=False)  # from our own parent
        found = function(*arguments, lambda text: heard.put(("said", rank, text)) if rank == 0 else None)
        file = io.BytesIO()
        torch.save(found, file)
        heard.put(("done", rank, file.getvalue()))
        dist.barrier()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        words = " ".join(str(error).split()) or type(error).__name__
        heard.put(("failed", rank, f"{words} ({Path(where.filename).name}:{where.lineno})"))
    finally:
        with suppress(Exception):
            dist.destroy_process_group()


def _loopback() -> str:
    return "lo0" if Path("/System").exists() else "lo"
