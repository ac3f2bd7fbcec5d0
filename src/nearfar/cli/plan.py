"""`nearfar plan`: tile, micro-batch and accumulation for a memory budget, and what the run will take of it."""

import re
import shlex
import sys

from jsonargparse import ArgumentError as BadArgument
from jsonargparse import ArgumentParser

from nearfar.cli.flags import describe
from nearfar.cli.stages import stage
from nearfar.cli.train import config_files, configured, explained, underscored, with_recipes
from nearfar.config import TrainConfig, read_yaml

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_DECIDED = ("--batch", "--batch_size", "--micro_batch", "--accumulate", "--tile", "--memory")  # here, with a value


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(
        prog="nearfar plan",
        description="Say how a run fits into a memory budget: in one piece, in micro-batches (the same gradient) or, "
        "where even that is too much, in several smaller batches. Flags are those of nearfar train. The data are "
        "opened and a few samples are tried on the CPU; the rest is arithmetic.",
        exit_on_error=False,
        default_env=False,
    )
    parser.add_argument(
        "--config", action="config", help="YAML with any of the keys below, or the name of a recipe; flags override it"
    )
    parser.add_argument("--memory", type=str | None, help="the budget of a process, such as 8GB or 512MiB")
    parser.add_argument("--measure", action="store_true", help="run two steps and compare; takes their time and memory")
    parser.add_class_arguments(TrainConfig, as_group=False)
    describe(parser, TrainConfig)
    known = {action.dest for action in parser._actions}
    arguments = with_recipes(arguments)
    try:
        for path in config_files(arguments):
            read_yaml(path)
        options = parser.parse_args([underscored(a) for a in arguments], defaults=False)
    except BadArgument as error:
        print(f"nearfar plan: {explained(str(error), known)}", file=sys.stderr)
        return 2
    budget, measured = bytes_of(options.pop("memory", None)), options.pop("measure", False)
    config = configured(options)

    from rich.console import Console
    from rich.table import Table

    from nearfar.losses.engine.tiles import automatic_side
    from nearfar.training.memory_plan import measure, plan, planned
    from nearfar.training.run import find_device

    console = Console()
    with stage(console, "opening the data, and trying a few samples"):
        found, costs, side = plan(config, budget)
    peak = found.peak
    processes = config.processes * config.nodes
    whole = costs.peak(
        config.batch_size, None, accumulate=config.accumulate, processes=processes, ring=config.gather == "ring"
    ).total
    words = f"a batch of {config.batch_size:,} in one piece takes {gigabytes(whole)}"
    if processes > 1:
        words += f" of each of {processes} processes"
    if found.batch < config.batch_size:
        words += (
            f"; no micro-batch of it fits: {found.accumulate} batches of {found.batch:,} to a step do not have the "
            "same gradient, since a sample has fewer negatives"
        )
    own = -(-found.batch // processes)
    if found.micro is not None and found.micro < own:
        words += f"; encoded {found.micro} at a time, with the same gradient, {gigabytes(peak.total)}"
    console.print(f"{config.method}, {config.backbone}, {config.data}: {words}", highlight=False)
    of_each = " of each process" if processes > 1 else ""
    table = Table(title=f"predicted peak{of_each}, budget {gigabytes(budget)}")
    table.add_column("what")
    table.add_column("MB", justify="right")
    for what, size in (
        ("process: packages, data, weights, queue", peak.process),
        ("gradients and optimiser", peak.weights),
        ("samples at work and waiting", peak.samples),
        ("views", peak.views),
        (f"embeddings of {found.batch:,}, in tiles of {side} × {side}", peak.embeddings),
        (f"activations of {min(found.micro or own, own):,}", peak.activations),
        ("in all", peak.total),
    ):
        table.add_row(what, f"{size / 1e6:,.0f}")
    console.print(table)
    if not found.fits:
        print(
            f"nearfar plan: the smallest that was tried takes {gigabytes(peak.total)} of {gigabytes(budget)}, of which "
            "a tenth is kept free; choose a smaller backbone, image size or head",
            file=sys.stderr,
        )
        return 1
    flags = ["--batch-size", str(found.batch)]
    flags += [] if found.micro is None else ["--micro-batch", str(found.micro)]
    flags += [] if found.accumulate == 1 else ["--accumulate", str(found.accumulate)]
    flags += [] if config.tile is None and side == automatic_side(find_device(config.device)) else ["--tile", str(side)]
    command = shlex.join(["nearfar", "train", *kept(arguments), *flags])
    console.print(f"run: {command}", soft_wrap=True, markup=False, highlight=False)
    if measured:
        with stage(console, "running two steps"):
            seen = measure(planned(config, found))
        console.print(
            f"measured: {gigabytes(seen)}; predicted {gigabytes(peak.total)}, {peak.total / seen:.0%} of it",
            highlight=False,
        )
    return 0


def bytes_of(text: str | None) -> int:
    """
    >>> bytes_of("8GB"), bytes_of("512 MiB"), bytes_of("1.5g")
    (8000000000, 536870912, 1500000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", (text or "").lower())
    if found is None or found[2] not in _UNITS or float(found[1]) <= 0:
        raise ValueError(f"memory is {text!r}, expected a size such as --memory 8GB or 512MiB")
    return round(float(found[1]) * _UNITS[found[2]])


def gigabytes(size: int) -> str:
    """
    >>> gigabytes(8_250_000_000), gigabytes(420_000_000)
    ('8.25 GB', '420 MB')
    """
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def kept(arguments: list[str]) -> list[str]:
    """What was asked for, without what the plan decides.

    >>> kept(["--data", "photos", "--memory=8GB", "--batch", "64", "--measure", "--seed=1"])
    ['--data', 'photos', '--seed=1']
    """
    left, value_follows = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        name = "--" + name[2:].replace("-", "_") if argument.startswith("--") else ""
        if value_follows:
            value_follows = False
        elif name in _DECIDED:
            value_follows = not equals
        elif name != "--measure":
            left.append(argument)
    return left
