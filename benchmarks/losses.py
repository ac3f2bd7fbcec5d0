"""Losses side by side with their peers: forward and backward, time and extra memory, in one run.

    make bench                                   # all, into benchmarks/results/losses.md and losses.png
    .venv-bench/bin/python benchmarks/losses.py --quick     # up to 1,024 pairs, prints only
    .venv-bench/bin/python benchmarks/losses.py --device cuda     # on a GPU, into benchmarks/results/losses-cuda.md

Every contender of a case has a process of its own; the processes take turns, so that the machine's moods fall on
all alike. Losses and gradients are compared before anything is timed.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from worker import Worker

RESULTS = Path(__file__).parent / "results"
TEMPERATURE = 0.1
DEVICE = os.environ.get("NEARFAR_BENCH_DEVICE", "cpu")  # set for the processes of the contenders
Step = Callable[[], object]


# Contenders: each builds the work of one step for (pairs, features) and returns it with what it needs gradients of.


def tensors(pairs: int, features: int):
    import torch

    generator = torch.Generator().manual_seed(0)
    return [torch.randn(pairs, features, generator=generator).to(DEVICE).requires_grad_() for _ in range(2)]


def nearfar_nt_xent(pairs: int, features: int):
    from nearfar.losses import nt_xent

    z1, z2 = tensors(pairs, features)
    return lambda: nt_xent(z1, z2, temperature=TEMPERATURE), (z1, z2)


def lightly_nt_xent(pairs: int, features: int):
    from nearfar import _torchvision  # noqa: F401, I001
    from lightly.loss import NTXentLoss

    z1, z2 = tensors(pairs, features)
    loss = NTXentLoss(temperature=TEMPERATURE)
    return lambda: loss(z1, z2), (z1, z2)


def metric_learning_nt_xent(pairs: int, features: int):
    from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss

    z1, z2 = tensors(pairs, features)
    loss = SelfSupervisedLoss(NTXentLoss(temperature=TEMPERATURE))
    return lambda: loss(z1, z2), (z1, z2)


def dense_nt_xent(pairs: int, features: int):
    import torch
    import torch.nn.functional as F

    z1, z2 = tensors(pairs, features)

    def loss():
        z = F.normalize(torch.cat([z1, z2]), dim=1)
        similarity = z @ z.T / TEMPERATURE
        itself = torch.eye(2 * pairs, dtype=torch.bool, device=DEVICE)
        similarity = similarity.masked_fill(itself, float("-inf"))
        return F.cross_entropy(similarity, torch.arange(2 * pairs, device=DEVICE).roll(pairs))

    return loss, (z1, z2)


def nearfar_info_nce(pairs: int, features: int):
    from nearfar.losses import info_nce

    z1, z2 = tensors(pairs, features)
    return lambda: info_nce(z1, z2, temperature=TEMPERATURE), (z1, z2)


def info_nce_pytorch(pairs: int, features: int):
    from info_nce import InfoNCE

    z1, z2 = tensors(pairs, features)
    loss = InfoNCE(temperature=TEMPERATURE)
    return lambda: loss(z1, z2), (z1, z2)


def nearfar_symmetric(pairs: int, features: int):
    import torch

    from nearfar.losses import symmetric_info_nce

    z1, z2 = tensors(pairs, features)
    scale = torch.tensor(1 / TEMPERATURE, device=DEVICE, requires_grad=True)
    return lambda: symmetric_info_nce(z1, z2, temperature=1 / scale), (z1, z2, scale)


def open_clip_symmetric(pairs: int, features: int):
    from nearfar import _torchvision  # noqa: F401, I001
    import torch
    import torch.nn.functional as F
    from open_clip import ClipLoss

    z1, z2 = tensors(pairs, features)
    scale = torch.tensor(1 / TEMPERATURE, device=DEVICE, requires_grad=True)
    loss = ClipLoss()
    return lambda: loss(F.normalize(z1, dim=1), F.normalize(z2, dim=1), scale), (z1, z2, scale)


def within(builder: str, make_context: Callable[[], object]) -> Callable[[int, int], tuple[Step, object]]:
    """Another contender's work inside a context."""

    def build(pairs: int, features: int):
        work, leaves = globals()[builder](pairs, features)

        def step():
            with make_context():
                return work()

        return step, leaves

    return build


def engine(name: str, precision: str):
    from nearfar.losses import use_engine

    return use_engine(name, precision=precision)


def bf16():
    import torch

    return torch.autocast(DEVICE, dtype=torch.bfloat16)


for task in ("nt_xent", "symmetric"):
    for how in ("auto exact", "auto tf32", "auto bf16", "tiles exact"):
        build = within(f"nearfar_{task}", lambda how=how: engine(*how.split()))
        globals()[f"nearfar_{task}_{how.replace(' ', '_')}"] = build
dense_nt_xent_bf16 = within("dense_nt_xent", bf16)
open_clip_symmetric_bf16 = within("open_clip_symmetric", bf16)


def bare_products(pairs: int, features: int):
    """The two matrix products no exact NT-Xent can do without, into memory that is there already."""
    import torch

    z = torch.cat([x.detach() for x in tensors(pairs, features)])
    similarity, gradient = torch.empty(len(z), len(z)), torch.empty_like(z)

    def products():
        torch.mm(z, z.T, out=similarity)
        torch.mm(similarity, z, out=gradient)

    return products, ()


@dataclass
class Case:
    task: str
    pairs: int
    features: int
    contenders: dict[str, str]  # name to builder
    repeats: int
    burst: int = 1  # steps in a turn: small work is timed warm, as a training loop runs it
    quick: bool = False
    times: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    checks: dict[str, list[float]] = field(default_factory=dict)

    def seconds(self, name: str) -> float:
        return statistics.median(self.times[name])

    def peers(self) -> list[str]:
        return [name for name in self.times if name not in ("nearfar", "two bare products")]


def cases() -> list[Case]:
    nt_xent = {"nearfar": "nearfar_nt_xent", "lightly": "lightly_nt_xent", "plain dense": "dense_nt_xent"}
    slow = {"pytorch-metric-learning": "metric_learning_nt_xent"}
    bare = {"two bare products": "bare_products"}
    clip = {"nearfar": "nearfar_symmetric", "open_clip": "open_clip_symmetric"}
    one_way = {"nearfar": "nearfar_info_nce", "info-nce-pytorch": "info_nce_pytorch"}
    alone = {"nearfar": "nearfar_nt_xent"}
    return [
        Case("nt_xent", 64, 128, nt_xent | slow, 15, burst=40, quick=True),
        Case("nt_xent", 256, 128, nt_xent | bare, 15, burst=40, quick=True),
        Case("nt_xent", 1024, 128, nt_xent | bare, 15, burst=5, quick=True),
        Case("nt_xent", 4096, 128, nt_xent | bare, 5),
        Case("nt_xent", 8192, 128, nt_xent | bare, 5),
        Case("nt_xent", 16384, 128, alone, 3),
        Case("nt_xent", 32768, 128, alone, 2),
        Case("nt_xent", 65536, 128, alone, 1),
        Case("info_nce", 256, 128, one_way, 15, burst=40, quick=True),
        Case("info_nce", 8192, 128, one_way, 5),
        Case("symmetric_info_nce", 256, 512, clip, 15, burst=40, quick=True),
        Case("symmetric_info_nce", 8192, 512, clip, 5),
    ]


def cases_on_gpu() -> list[Case]:
    """Exact float32 first, as the others do it; then what is rounded, by each."""

    def ours(task: str) -> dict[str, str]:
        how = {"nearfar": "auto exact", "tiles": "tiles exact", "tf32": "auto tf32", "bf16": "auto bf16"}
        return {
            name if name == "nearfar" else f"nearfar, {name}": f"nearfar_{task}_{words.replace(' ', '_')}"
            for name, words in how.items()
        }

    nt_xent = ours("nt_xent") | {"plain dense": "dense_nt_xent", "plain dense, bf16": "dense_nt_xent_bf16"}
    clip = ours("symmetric") | {"open_clip": "open_clip_symmetric", "open_clip, bf16": "open_clip_symmetric_bf16"}
    bare = {"two bare products": "bare_products"}
    return [
        *(Case("nt_xent", n, 128, nt_xent | bare, 15, burst=20, quick=n < 2048) for n in (256, 1024, 8192)),
        *(Case("symmetric_info_nce", n, 512, clip, 15, burst=20, quick=n < 2048) for n in (1024, 8192, 16384)),
        Case("nt_xent", 65536, 128, ours("nt_xent"), 3),
    ]


# One process for each contender: it answers "check", "memory" and "time" on its standard input.


def serve(builder: str, pairs: int, features: int, burst: int) -> None:
    import torch

    from machine import extra_memory

    small = globals()[builder](8, features)[0]()  # libraries and threads are there before memory is read
    if isinstance(small, torch.Tensor):
        small.backward()
    work, leaves = globals()[builder](pairs, features)

    def step() -> object:
        for leaf in leaves:
            leaf.grad = None
        loss = work()
        if leaves:
            loss.backward()
        return loss

    def check() -> list[float]:
        loss = step()
        if not leaves:
            return []
        direction = torch.Generator().manual_seed(1)
        marks = [float(leaf.grad.norm()) for leaf in leaves]
        marks += [float((leaf.grad * torch.randn(leaf.shape, generator=direction)).sum()) for leaf in leaves]
        return [float(loss.detach()), *marks]

    def seconds() -> float:
        if burst > 1:
            step()
        finish()
        start = time.perf_counter()
        for _ in range(burst):
            step()
        finish()
        return (time.perf_counter() - start) / burst

    def finish() -> None:
        if DEVICE != "cpu":
            torch.accelerator.synchronize()

    def memory() -> float:
        if DEVICE == "cpu":
            return extra_memory(step)
        step()  # tiles are tuned once
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return (torch.cuda.max_memory_allocated() - before) / 2**20

    orders = {"check": check, "memory": memory, "time": seconds}
    for line in sys.stdin:
        print(json.dumps(orders[line.strip()]()), flush=True)


def run(case: Case) -> None:
    """Memory first, in the fresh process; then agreement; then times, in turns."""
    workers = {
        name: Worker(__file__, case.contenders[name], case.pairs, case.features, case.burst) for name in case.contenders
    }
    for name, worker in workers.items():
        case.memory[name] = worker.ask("memory")
        case.checks[name] = worker.ask("check") if len(workers) > 1 else []
    agree(case)
    for name in workers:
        case.times[name] = []
    for _ in range(case.repeats):
        for name, worker in workers.items():
            case.times[name].append(worker.ask("time"))
    for worker in workers.values():
        worker.close()


def agree(case: Case) -> None:
    """Stop where a contender's loss or gradient is not nearfar's: a quick wrong answer is no rival."""
    for name, marks in case.checks.items():
        most = 0.1 if name.endswith(("bf16", "tf32")) else 1e-3
        for ours, theirs in zip(case.checks["nearfar"], marks, strict=False):
            if abs(ours - theirs) > most * max(abs(ours), 1e-3):
                raise SystemExit(f"{case.task} at {case.pairs} pairs: nearfar {ours:.6g}, {name} {theirs:.6g}")


def duration(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds < 0.1 else f"{seconds:.2f} s"


def table(results: list[Case]) -> str:
    rows = [
        "| loss | pairs | D | contender | time | times nearfar's | extra memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in results:
        ours = case.seconds("nearfar")
        for name in case.times:
            memory = "–" if name == "two bare products" else f"{case.memory[name]:,.0f} MiB"
            ratio = "1" if name == "nearfar" else f"{case.seconds(name) / ours:.2f}"
            cells = [case.task, f"{case.pairs:,}", case.features, name, duration(case.seconds(name)), ratio, memory]
            rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def targets(results: list[Case]) -> str:
    """What was to be reached, what was, and whether."""
    by = {(c.task, c.pairs): c for c in results}
    lines = ["| target | measured | reached |", "|---|---|---|"]

    def line(what: str, measured: str, reached: bool) -> None:
        lines.append(f"| {what} | {measured} | {'yes' if reached else 'no'} |")

    if case := by.get(("nt_xent", 8192)):
        quickest = min(case.peers(), key=case.seconds)
        speed = case.seconds(quickest) / case.seconds("nearfar")
        share = case.memory["nearfar"] / case.memory[quickest]
        bare = case.seconds("nearfar") / case.seconds("two bare products")
        line("NT-Xent, 8,192 pairs: at least 4× the quickest peer", f"{speed:.1f}× ({quickest})", speed >= 4)
        line("… with at most 5 % of its extra memory", f"{share:.1%}", share <= 0.05)
        line("… at most 1.7× the two bare products", f"{bare:.2f}×", bare <= 1.7)
    if case := by.get(("symmetric_info_nce", 8192)):
        speed = case.seconds("open_clip") / case.seconds("nearfar")
        share = case.memory["nearfar"] / case.memory["open_clip"]
        line("symmetric InfoNCE, 8,192 pairs, D = 512: at least 1.5× open_clip", f"{speed:.2f}×", speed >= 1.5)
        line("… with at most 10 % of its extra memory", f"{share:.1%}", share <= 0.10)
    if case := by.get(("nt_xent", 65536)):
        line("65,536 pairs: under 1 GiB extra", f"{case.memory['nearfar']:.0f} MiB", case.memory["nearfar"] < 1024)
    for task in ("nt_xent", "info_nce", "symmetric_info_nce"):
        if case := by.get((task, 256)):
            quickest = min(case.peers(), key=case.seconds)
            speed = case.seconds(quickest) / case.seconds("nearfar")
            line(f"{task}, 256 pairs: not slower than the quickest peer", f"{speed:.2f}× ({quickest})", speed >= 1)
    return "\n".join(lines)


def plot(results: list[Case], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    ours = [c for c in results if c.task == "nt_xent"]
    for name in ("nearfar", "lightly", "plain dense"):
        has = [c for c in ours if name in c.times]
        left.plot([c.pairs for c in has], [c.seconds(name) for c in has], "o-", label=name)
        has = [c for c in has if c.memory[name] > 1]
        right.plot([c.pairs for c in has], [c.memory[name] for c in has], "o-", label=name)
    for axis, what in ((left, "seconds, forward + backward"), (right, "extra peak memory, MiB")):
        axis.set(xscale="log", yscale="log", xlabel="pairs", ylabel=what, title=f"NT-Xent, D = 128: {what}")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=110)


def on_gpu(device: str, quick: bool) -> None:
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(f"benchmarks/losses.py: there is no device {device!r} here; leave --device out")
    from machine import describe

    os.environ["NEARFAR_BENCH_DEVICE"] = device
    results = [case for case in cases_on_gpu() if case.quick or not quick]
    for number, case in enumerate(results, 1):
        print(f"[{number}/{len(results)}] {case.task}, {case.pairs:,} pairs, D = {case.features}", file=sys.stderr)
        run(case)
    page = gpu_page(f"Measured on {torch.cuda.get_device_name()}; {describe()}.", table(results))
    print(page)
    if not quick:
        (RESULTS / "losses-cuda.md").write_text(page)


def gpu_page(where: str, rows: str) -> str:
    return (
        "# Losses on a GPU: time and memory of forward + backward\n\n"
        f"`python benchmarks/losses.py --device cuda` in `.venv-bench` with a GPU build of torch. {where}\n"
        "Medians of interleaved repeats, each contender in a process of its own. Rows without a precision are float32; "
        "dense ones with bf16 run under autocast. Extra memory is that of torch's allocator. "
        "[How the kernel works](../../docs/concepts/kernel.md).\n\n"
        f"{rows}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small cases alone; writes nothing")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="cuda: a GPU (default: cpu)")
    parser.add_argument("--serve", nargs=4, metavar=("BUILDER", "PAIRS", "FEATURES", "BURST"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        builder, *numbers = options.serve
        return serve(builder, *map(int, numbers))

    from machine import describe

    if options.device != "cpu":
        return on_gpu(options.device, options.quick)
    results = [case for case in cases() if case.quick or not options.quick]
    for number, case in enumerate(results, 1):
        print(f"[{number}/{len(results)}] {case.task}, {case.pairs:,} pairs, D = {case.features}", file=sys.stderr)
        run(case)
    page = (
        "# Losses: time and memory of forward + backward, float32\n\n"
        f"`make bench` on {describe()}.\n"
        "Medians of interleaved repeats, each contender in a process of its own; losses and gradients agree.\n\n"
        f"{targets(results)}\n\n{table(results)}\n\n"
        "Extra memory is the rise of resident memory at its peak over what the process held before the step.\n"
        "The matrix of the 131,072 views of 65,536 pairs would take 69 GB in float32.\n"
    )
    print(page)
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "losses.md").write_text(page + "\n![cost against batch size](losses.png)\n")
        plot(results, RESULTS / "losses.png")
        print(f"written: {RESULTS / 'losses.md'}, {RESULTS / 'losses.png'}", file=sys.stderr)
    return None


if __name__ == "__main__":
    main()
