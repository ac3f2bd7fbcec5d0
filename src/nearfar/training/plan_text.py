"""A memory plan as text: the sentence, the table of the peak, and the flags of `nearfar train`."""

import re

from rich.table import Table

from nearfar.config import TrainConfig
from nearfar.devices import find_device
from nearfar.losses.engine.tiles import default_tile_side
from nearfar.training.memory_costs import Costs, MemoryPlan

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_size(text: str | None) -> int:
    """
    >>> parse_size("8GB"), parse_size("512 MiB"), parse_size("1.5g")
    (8000000000, 536870912, 1500000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", (text or "").lower())
    if found is None or found[2] not in _UNITS or float(found[1]) <= 0:
        raise ValueError(f"memory is {text!r}, expected a size such as --memory 8GB or 512MiB")
    return round(float(found[1]) * _UNITS[found[2]])


def format_size(size: int) -> str:
    """
    >>> format_size(8_250_000_000), format_size(420_000_000)
    ('8.25 GB', '420 MB')
    """
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def plan_sentence(config: TrainConfig, found: MemoryPlan, costs: Costs) -> str:
    """What the whole batch takes, and what was chosen instead."""
    processes, ring = config.processes * config.nodes, config.gather == "ring"
    whole = costs.peak(
        config.batch_size, None, accumulate=config.accumulate_batches, processes=processes, ring=ring
    ).total
    text = f"a batch of {config.batch_size:,} in one piece takes {format_size(whole)}"
    if processes > 1:
        text += f" of each of {processes} processes"
    if found.batch < config.batch_size:
        text += (
            f"; no micro-batch of it fits: {found.accumulate} batches of {found.batch:,} per step do not give the same "
            "gradient, since each sample has fewer negatives"
        )
    if found.micro is not None and found.micro < -(-found.batch // processes):
        text += f"; encoded {found.micro} at a time, with the same gradient, {format_size(found.peak.total)}"
    return f"{config.method}, {config.backbone}, {config.data.path}: {text}"


def plan_table(config: TrainConfig, found: MemoryPlan, side: int, budget: int) -> Table:
    """The parts of the predicted peak; `side` is that of the tiles."""
    peak, processes = found.peak, config.processes * config.nodes
    own = -(-found.batch // processes)
    table = Table(title=f"predicted peak{' of each process' if processes > 1 else ''}, budget {format_size(budget)}")
    table.add_column("what")
    table.add_column("MB", justify="right")
    for what, size in (
        ("process: packages, data, weights, queue", peak.process),
        ("gradients and optimizer", peak.weights),
        ("samples in use and prefetched", peak.samples),
        ("views", peak.views),
        (f"embeddings of {found.batch:,}, in tiles of {side} × {side}", peak.embeddings),
        (f"activations of {min(found.micro or own, own):,}", peak.activations),
        ("total", peak.total),
    ):
        table.add_row(what, f"{size / 1e6:,.0f}")
    return table


def plan_flags(config: TrainConfig, found: MemoryPlan, side: int) -> list[str]:
    """The flags of `nearfar train` that follow the plan."""
    flags = ["--batch-size", str(found.batch)]
    flags += [] if found.micro is None else ["--micro-batch-size", str(found.micro)]
    flags += [] if found.accumulate == 1 else ["--accumulate-batches", str(found.accumulate)]
    automatic = config.tile_size is None and side == default_tile_side(find_device(config.device))
    return flags if automatic else [*flags, "--tile-size", str(side)]
