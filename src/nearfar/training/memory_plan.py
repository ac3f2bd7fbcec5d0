"""What a run of this configuration will take of the memory: a few rows are tried, the rest is arithmetic."""

import copy
import ctypes
import gc
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

from nearfar.child_process import run_module
from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.data.loader import Loader
from nearfar.devices import find_device
from nearfar.losses.engine.tiles import default_tile_side
from nearfar.methods import Batch, Method
from nearfar.methods.method import Encoded
from nearfar.nn.queue import Queue
from nearfar.training.memory_costs import Costs, LiveBytes, MemoryPlan, choose, measured_line
from nearfar.training.optimizers import make_optimizer
from nearfar.training.setup import TrainingSetup

_QUIET = Console(quiet=True)
_FEW, _MORE = 4, 8  # rows that are tried of encoder and views; MoCo makes groups of four rows or more
_CONTRASTED = 1024  # rows of similarities that are tried: more than a tile has
_LOOK = 256  # samples that are read out at a time
_ENOUGH = 64 * 2**20  # bytes of tensors beside which the system's own comings and goings are small


def plan(config: TrainConfig, budget: int) -> tuple[MemoryPlan, Costs, int]:
    """How to run the batch within so many bytes, what each part costs, and the side of the tiles."""
    costs, side = costs_of(replace(config, processes=1, nodes=1)), tile_of(config, budget)  # the rest is arithmetic
    on_cpu = find_device(config.device).type == "cpu"
    found = choose(
        costs,
        budget,
        batch=config.batch_size,
        accumulate=config.accumulate_batches,
        micro=config.micro_batch_size,
        tile_bytes=0 if on_cpu else 2 * 4 * side**2,  # a GPU's tiles are larger than those tried here
        processes=config.processes * config.nodes,
        ring=config.gather == "ring",
    )
    return found, costs, side


def tile_of(config: TrainConfig, budget: int) -> int:
    """The tile's side that is asked for or automatic, unless that takes more than a fiftieth of the budget."""
    side = config.tile_size or default_tile_side(find_device(config.device))
    while config.tile_size is None and side > 64 and 4 * side**2 > budget // 50:
        side //= 2
    return side


def costs_of(config: TrainConfig) -> Costs:
    """Open the data and make the method as the run will, and try a few rows of each step."""
    setup = TrainingSetup(config, _QUIET)
    process = _process(setup)
    probe = _Probe(setup)
    forward = measured_line(probe.forward, _FEW, _MORE)
    both = measured_line(probe.both_ways, _FEW, _MORE)
    views = measured_line(probe.views, _FEW, _MORE)
    encoded = probe.encoded(_FEW)
    frames = max([1, *(x.shape[1] for x in encoded.values() if x.ndim > 2)])
    more = max(_MORE, min(max(config.batch_size, _MORE), _CONTRASTED // frames))
    contrast = measured_line(probe.contrast(encoded), more // 2, more)
    gradients, optimizer = probe.optimizer_bytes()
    row = sum(x.numel() * x.element_size() for x in encoded.values()) // _FEW
    sample = setup.train.fetch(torch.arange(_FEW))
    readout, workspace = measured_line(probe.readout, _FEW, _MORE), probe.workspace()
    return Costs(
        process=process,
        gradients=gradients,
        optimizer=optimizer,
        sample=sample.numel() * sample.element_size() // _FEW,
        forward=forward,
        backward=both,
        encoded=row,
        contrast=contrast,
        views=views,
        viewed_in_parts=setup.modality.views_in_rows,
        workspace=workspace,
        readout=readout.peak(_LOOK) + workspace * _LOOK if setup.validation is not None else 0,
    )


def _process(setup: TrainingSetup) -> int:
    """Bytes of a process that trains, after a step of a few rows: packages, data, weights and what all these keep.

    Of a GPU's memory those of the weights and buffers alone: its context is the driver's.
    """
    if setup.device.type != "cpu":
        return sum(x.numel() * x.element_size() for x in setup.method.state_dict().values())
    from nearfar.training.fit import fit

    whole = setup.loader, setup.config, setup.validation
    setup.loader, setup.validation = Loader(len(setup.train), _FEW, setup.config.seed), None
    setup.set_steps(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            fit(setup, Path(folder), _QUIET)
    finally:
        setup.loader, setup.config, setup.validation = whole
        setup.modality.config = setup.config
    setup.method.zero_grad()
    return resident()


class _Probe:
    """The pieces of a step, each on any number of rows. Every piece is tried on a copy of the method."""

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup, self.config = setup, setup.config
        for part in setup.method.modules():
            if isinstance(part, Queue):  # as it soon will be
                part.filled.fill_(part.size)
        setup.method.train()
        self.order = _longest_first(setup.train)

    def rows(self, count: int) -> Tensor:
        return self.order[torch.arange(count) % len(self.order)]

    def batch(self, rows: int) -> Batch:
        index = self.rows(rows)
        samples = self.setup.train.fetch(index)
        views = self.setup.modality.views(samples, self.setup.train, index, seed=self.config.seed, step=0)
        labels = self.setup.method_labels
        views, of_batch = [x.clone() for x in views], None if labels is None else labels[index]
        return self.setup.modality.as_batch(views, self.setup.train, index, index, of_batch)

    def method(self) -> Method:
        return copy.deepcopy(self.setup.method)

    def autocast(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision != "32")

    def views(self, rows: int) -> Callable[[], object]:
        index = self.rows(rows)
        samples, modality = self.setup.train.fetch(index), self.setup.modality
        modality.forget_buffers()
        kept: list[Tensor] = []
        return lambda: kept.extend(modality.views(samples, self.setup.train, index, seed=self.config.seed, step=0))

    def encoded(self, rows: int) -> Encoded:
        with torch.no_grad(), self.autocast():
            return self.method().encode(self.batch(rows))

    def forward(self, rows: int) -> Callable[[], object]:
        method, batch, kept = self.method(), self.batch(rows), {}

        def work() -> None:
            with self.autocast():
                kept.update(method.encode(batch))

        return work

    def both_ways(self, rows: int) -> Callable[[], object]:
        method, batch = self.method(), self.batch(rows)
        parameters = [p for p in method.parameters() if p.requires_grad]

        def work() -> None:
            with self.autocast():
                encoded = method.encode(batch)
            outputs = [x for x in encoded.values() if x.requires_grad]
            incoming = [torch.ones_like(x) for x in outputs]
            torch.autograd.grad(outputs, parameters, incoming, allow_unused=True)

        return work

    def contrast(self, few: Encoded) -> Callable[[int], Callable[[], object]]:
        with_gradient = {name for name, x in self._with_graph().items() if x.requires_grad}

        def make(rows: int) -> Callable[[], object]:
            method, times = self.method(), -(-rows // _FEW)

            def work() -> None:
                encoded = {}
                for name, x in few.items():
                    many = x.repeat(times, *[1] * (x.ndim - 1))[:rows]
                    if name in ("ids", "index"):
                        many = self.rows(rows)
                    elif x.is_floating_point():
                        many = many + 0.1 * torch.randn_like(many)
                    encoded[name] = many.requires_grad_(name in with_gradient)
                with self.autocast():
                    loss = method.contrast(encoded).loss
                loss.backward()

            return work

        return make

    def _with_graph(self) -> Encoded:
        with self.autocast():
            return self.method().encode(self.batch(_FEW))

    def optimizer_bytes(self) -> tuple[int, int]:
        """Bytes of the gradients and of the optimizer's state."""
        trained = [p for p in self.setup.method.parameters() if p.requires_grad]
        sizes = [p.numel() * p.element_size() for p in trained]
        one = Method()
        one.encoder = nn.Linear(64, 64)  # an optimizer holds so many numbers for each of its weights
        optimizer = make_optimizer(one, self.config.optimizer, self.config.batch_size, self.config.adapt)
        one.encoder(torch.ones(1, 64)).sum().backward()
        optimizer.step()
        state = sum(x.numel() for each in optimizer.state.values() for x in each.values() if x.numel() > 1)
        return sum(sizes), round(sum(sizes) * state / sum(p.numel() for p in one.parameters()))

    def readout(self, rows: int) -> Callable[[], object]:
        encoder, index = self.method().encoder.eval(), self.rows(rows)
        samples, modality = self.setup.train.fetch(index), self.setup.modality

        def work() -> None:
            with torch.no_grad():
                views = modality.pair_of_views(samples, self.setup.train, index, seed=0, step=0)
                encoder(modality.prepare(samples))
                del views

        return work

    def workspace(self) -> int:
        """Bytes a row that operations take inside themselves: resident memory beyond tensors, on enough rows."""
        if self.setup.device.type != "cpu":
            return 0  # not that of this device
        encoder, train, prepare = self.method().encoder.eval(), self.setup.train, self.setup.modality.prepare

        def ready(rows: int) -> Callable[[], object]:
            x = prepare(train.fetch(self.rows(rows)))
            return lambda: torch.no_grad()(encoder)(x)

        per_row = max(1, measured_line(ready, _FEW, _MORE).peak(1))
        rows = min(max(_ENOUGH // per_row, 16), 512)
        work = ready(rows)
        work()
        with LiveBytes() as held:
            work()
        before = resident()
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        except OSError:
            return 0
        work()
        beyond: int = most_resident() - before - max(held.course)
        return max(0, beyond) // rows


def _longest_first(train: Dataset) -> Tensor:
    """(N,) sample numbers; the longest texts come first: a batch is as wide as the longest text in it."""
    counts = train.token_counts
    return torch.arange(len(train)) if counts is None else counts.argsort(descending=True, stable=True)


def resident() -> int:
    """Bytes of this process in memory, after what is free was given back."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return _status("VmRSS")


def most_resident() -> int:
    """The most bytes that this process ever had in memory."""
    return _status("VmHWM")


def _status(field: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(config: TrainConfig) -> int:
    """The peak of two steps and the look at the validation samples after them, in a process of their own."""
    if (device := find_device(config.device)).type != "cpu":
        raise ValueError(
            f"the peak is measured on a CPU, and the device is {device}; add --device cpu, or do not measure"
        )
    if config.processes * config.nodes > 1:
        raise ValueError("the peak is measured on one process; leave --processes and --nodes out, or do not measure")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plan.yaml").write_text(config.to_yaml(), encoding="utf-8")
        child = run_module("nearfar.training.memory_plan", folder)
    if child.returncode:
        reason = (child.stderr.strip().splitlines() or ["it was ended, perhaps for want of memory"])[-1]
        raise RuntimeError(f"the steps could not be measured: {reason}")
    return int(json.loads(child.stdout.strip().splitlines()[-1])["peak"])


def _steps(folder: Path, count: int = 2) -> None:
    from nearfar.training.fit import fit

    setup = TrainingSetup(TrainConfig.from_yaml(folder / "plan.yaml"), _QUIET)
    setup.set_steps(min(setup.total_steps, count))
    fit(setup, folder, _QUIET)
    print(json.dumps({"peak": most_resident()}))


def planned(config: TrainConfig, found: MemoryPlan) -> TrainConfig:
    """The configuration that a plan stands for."""
    return replace(config, batch_size=found.batch, micro_batch_size=found.micro, accumulate_batches=found.accumulate)


if __name__ == "__main__":
    _steps(Path(sys.argv[1]))
