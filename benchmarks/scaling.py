"""Time and memory of one training step against batch and processes, by gather and by ring, on this machine.

A step is a small encoder (three layers) and NT-Xent, forward and backward, on a batch of random rows that the processes
share. Every figure is taken in fresh processes of one thread each; where there are more processes than cores they take
turns, and time tells nothing of scaling: memory does.

    python benchmarks/scaling.py [--batches 1024 4096 16384] [--processes 1 2 4] [--out benchmarks/results/scaling.md]
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from machine import describe, extra_memory
from nearfar.distributed.processes import contrast_shards, encode_shard, run_in_processes
from nearfar.methods import Batch, SimCLR
from nearfar.nn.shard import Shard

FEATURES, DIM, STEPS = 256, 128, 3


def step_of(batch: int, by: str) -> tuple[Callable[[], float], int]:
    """A step of this process, its gradients averaged as DDP does; and its rows."""
    rank, world = dist.get_rank(), dist.get_world_size()
    sizes = tuple(len(part) for part in torch.arange(batch).tensor_split(world))
    shard = Shard(rank, sizes) if world > 1 else None
    torch.manual_seed(0)
    layers = [nn.Linear(FEATURES, FEATURES), nn.GELU(), nn.Linear(FEATURES, FEATURES), nn.GELU()]
    method = SimCLR(nn.Sequential(*layers, nn.Linear(FEATURES, FEATURES)), features=FEATURES, dim=DIM, temperature=0.1)
    everything = torch.randn(2, batch, FEATURES, generator=torch.Generator().manual_seed(0))  # the same for all
    first = sum(sizes[:rank])
    views = [view[first : first + sizes[rank]].clone() for view in everything]
    index = torch.arange(first, first + sizes[rank])
    own = Batch(views, index, index)

    def step() -> float:
        method.zero_grad()
        loss = contrast_shards(method, encode_shard(method, own, shard), shard, by=by).loss  # type: ignore[arg-type]
        loss.backward()
        if world > 1:
            for parameter in method.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
        return float(loss.detach())

    return step, sizes[rank]


def measured(batch: int, by: str, say: Any) -> dict[str, float]:
    """In each process: seconds of a step, the memory it takes beyond what was there, and the loss."""
    step, rows = step_of(batch, by)
    small, _ = step_of(64, by)  # threads, buffers and the like
    small()
    memory = extra_memory(step)
    seconds = []
    for _ in range(STEPS):
        dist.barrier()
        start = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - start)
    return {"rows": rows, "seconds": statistics.median(seconds), "memory": memory, "loss": loss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "scaling.md")
    options = parser.parse_args()
    lines = [
        "# A step against batch and processes",
        "",
        f"{describe()}; one thread a process; an encoder of three layers of {FEATURES} and NT-Xent of {DIM} features,",
        f"forward and backward. Seconds: the median of {STEPS} steps, of the slowest process. Memory: what a step",
        "takes at its peak, of the process that takes most. The whole similarity matrix would take the last column.",
        "",
        "| batch | processes | rows each | by | seconds | MiB a process | loss | matrix, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for batch in options.batches:
        for processes in options.processes:
            for by in ("gather", "ring") if processes > 1 else ("gather",):
                found = run_in_processes(processes, measured, batch, by, seconds=3600)
                seconds, memory = max(f["seconds"] for f in found), max(f["memory"] for f in found)
                way = by if processes > 1 else "alone"
                lines.append(
                    f"| {batch:,} | {processes} | {found[0]['rows']:,} | {way} | {seconds:.2f} | {memory:,.0f} | "
                    f"{found[0]['loss']:.4f} | {4 * (2 * batch) ** 2 / 2**20:,.0f} |"
                )
                print(lines[-1], flush=True)
    load = os.getloadavg()[0]
    lines += ["", f"Load of the machine at the end: {load:.1f} on {os.cpu_count()} cores. Run again:", ""]
    lines += ["`python benchmarks/scaling.py`.", ""]
    options.out.write_text("\n".join(lines))
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
