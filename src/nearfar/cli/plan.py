"""`nearfar plan`: tile, micro-batch and accumulation for a memory budget, and the predicted peak."""

import shlex
import sys

from jsonargparse import ArgumentError as BadArgument
from jsonargparse import ArgumentParser

from nearfar.cli.flags import check_sections, describe, show_dashes
from nearfar.cli.help_text import full_help
from nearfar.cli.train import CONFIG_HELP, SHORT, config_file, configured, explained, full_flags, take_configs
from nearfar.config import TrainConfig
from nearfar.progress import stage
from nearfar.settings import sections

_DECIDED = (
    "--batch",
    "--batch_size",
    "--micro_batch_size",
    "--accumulate_batches",
    "--tile_size",
    "--memory",
)  # by the plan


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(
        prog="nearfar plan",
        exit_on_error=False,
        default_env=False,
    )
    parser.add_argument("--config", type=str | None, help=CONFIG_HELP)
    parser.add_argument("--memory", type=str | None, help="memory of a process, such as 8GB or 512MiB")
    parser.add_argument("--measure", action="store_true", help="run two steps and compare; takes their time and memory")
    parser.add_class_arguments(TrainConfig, as_group=False)
    describe(parser, TrainConfig)
    show_dashes(parser)
    if {"-h", "--help"} & {*arguments}:
        print(full_help("plan", parser, SHORT))
        return 0
    known = {action.dest: action.help or "" for action in parser._actions}
    names, flags = take_configs(arguments)
    files = [config_file(name) for name in names]
    flags = full_flags(flags, SHORT)
    check_sections(flags, sections(TrainConfig))
    try:
        options = parser.parse_args(flags, defaults=False)
    except BadArgument as error:
        print(f"nearfar plan: {explained(str(error), known)}", file=sys.stderr)
        return 2

    from rich.console import Console

    from nearfar.training.memory_plan import measure, plan, planned
    from nearfar.training.plan_text import format_size, parse_size, plan_flags, plan_sentence, plan_table

    console = Console()
    budget, measured = parse_size(options.pop("memory", None)), options.pop("measure", False)
    config = configured(files, options)
    with stage(console, "opening the data and running a few samples"):
        found, costs, side = plan(config, budget)
    peak = found.peak.total
    console.print(plan_sentence(config, found, costs), highlight=False)
    console.print(plan_table(config, found, side, budget))
    if not found.fits:
        print(
            f"nearfar plan: the smallest batch takes {format_size(peak)} of {format_size(budget)}, of which a tenth is "
            "kept free; choose a smaller backbone, image size or head",
            file=sys.stderr,
        )
        return 1
    command = shlex.join(["nearfar", "train", *kept_flags(arguments), *plan_flags(config, found, side)])
    console.print(f"run: {command}", soft_wrap=True, markup=False, highlight=False)
    if measured:
        with stage(console, "running two steps"):
            taken = measure(planned(config, found))
        text = f"measured: {format_size(taken)}; predicted {format_size(peak)}, {peak / taken:.0%} of it"
        console.print(text, highlight=False)
    return 0


def kept_flags(arguments: list[str]) -> list[str]:
    """The given flags without those that the plan decides.

    >>> kept_flags(["--data", "photos", "--memory=8GB", "--batch", "64", "--measure", "--seed=1"])
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
