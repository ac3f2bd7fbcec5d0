"""`nearfar evaluate`: how good is an encoder, on what, and compared with what?"""

import sys
from itertools import pairwise
from pathlib import Path

from jsonargparse import ArgumentError as BadArgument
from jsonargparse import ArgumentParser, Namespace

from nearfar.cli.flags import check_sections, describe, show_dashes
from nearfar.cli.help_text import full_help
from nearfar.cli.train import explained, full_flags
from nearfar.data.config import EvaluationData
from nearfar.data.names import check_run_there, check_there
from nearfar.settings import build
from nearfar.weights.names import EXPECTED

ENCODERS = f"{EXPECTED}; or a file.onnx"
SHORT = {
    "--data": f"--data.{EvaluationData.main_key}",
    "--test": "--data.test",
    "--labels": "--data.labels",
    "--workers": "--data.workers",
}


def check_arguments(arguments: list[str]) -> None:
    """Refuse a run and data that are not there before anything slow is imported; all else is the parser's."""
    run = arguments[0] if arguments and not arguments[0].startswith("-") else None
    check_run_there(run)
    for flag, value in pairwise([*arguments, ""]):
        name, equals, inside = flag.partition("=")
        if name == "--encoder":
            check_run_there(inside if equals else value)
        if name in ("--data", "--data.path", "--test", "--data.test"):
            check_there(inside if equals else value, run=run)


def main(arguments: list[str]) -> int:
    check_arguments(arguments)
    from nearfar.evaluation.protocols import protocol_config  # here, since these import torch

    parser = ArgumentParser(prog="nearfar evaluate", exit_on_error=False, default_env=False)
    parser.add_argument("run", nargs="?", type=str | None, help=ENCODERS)
    parser.add_argument("--encoder", type=str | None, help="the same, as a flag")
    parser.add_argument("--protocol", nargs="+", default=["knn", "linear"], help="what to measure")
    parser.add_argument("--against", nargs="+", default=[], help="further encoders to compare with")
    parser.add_argument("--seed", type=int | None, help="the first seed (default: the run's on its own data, else 0)")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, for protocols that draw at random")
    parser.add_argument("--image_size", type=int | None, help="input size in pixels of encoders of other libraries")
    parser.add_argument("--dim", type=int | None, help="first numbers of each embedding to keep (default: all)")
    parser.add_argument("--batch_size", type=int, default=256, help="samples embedded at a time")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "--out", type=str | None, help="where to write (default: the run, RUN/dim-N with --dim, or evaluations/NAME)"
    )
    parser.add_argument(
        "--label_errors", type=str | None, metavar="FOLDER", help="write labels that are probably wrong, and outliers"
    )
    parser.add_argument("--all_metrics", action="store_true", help="print every metric, not only the main ones")
    parser.add_class_arguments(EvaluationData, "data")
    settings = protocol_config(outside_protocols(arguments))
    parser.add_class_arguments(settings, "protocols")
    describe(parser, EvaluationData, "data.")
    describe(parser, settings, "protocols.")
    show_dashes(parser)
    if {"-h", "--help"} & {*arguments}:
        print(full_help("evaluate", parser, SHORT))
        return 0
    known = {action.dest: action.help or "" for action in parser._actions}
    arguments = full_flags(arguments, SHORT)
    check_sections(arguments, {"data": EvaluationData, "protocols": settings})
    try:
        options = parser.parse_args(arguments)
    except BadArgument as error:
        print(f"nearfar evaluate: {explained(str(error), known)}", file=sys.stderr)
        return 2
    if (options.run is None) == (options.encoder is None):
        print(f"nearfar evaluate: expected one encoder: {ENCODERS}", file=sys.stderr)
        return 2

    from rich.console import Console

    from nearfar.devices import find_device
    from nearfar.evaluation.task import Compute
    from nearfar.report.refresh import evaluate_to_folder, print_verdict, results_folder

    console, seed, seeds = Console(), options.seed, options.seeds
    out = Path(options.out) if options.out else None
    if out is None and options.dim is not None:
        out = results_folder(options.run or options.encoder, None) / f"dim-{options.dim}"
    results, folder = evaluate_to_folder(
        options.run or options.encoder,
        data=options.data.as_dict(),
        protocols=options.protocol,
        against=options.against,
        seeds=seeds if seed is None else range(seed, seed + seeds),
        settings=build(settings, options.protocols.as_dict(), "protocols"),
        image_size=options.image_size,
        dim=options.dim,
        compute=Compute(options.batch_size, find_device(options.device), console.is_terminal),
        out=out,
        console=console,
    )
    page = folder / "report.html"
    page = page if page.exists() else folder / "evaluation.json"
    print_verdict(folder, results, console, report=page, every=options.all_metrics)
    if options.label_errors is not None:
        _write_label_errors(options)
    return 0


def _write_label_errors(options: Namespace) -> None:
    """Judge the labels of the evaluated data by the encoder."""
    from nearfar.doctor.audit import audit_training_part, write_audit
    from nearfar.model.load import load

    encoder = load(options.run or options.encoder, image_size=options.image_size, dim=options.dim)
    section = options.data.as_dict()
    data = section.get("path") or encoder.card["config"]["data"]["path"]
    found = audit_training_part(encoder, data, labels=section.get("labels"))
    print(found.shown())
    for name, where in write_audit(found, encoder, Path(options.label_errors)).items():
        print(f"{name}: {where}")


def outside_protocols(arguments: list[str]) -> list[str]:
    """The protocols that are given as MODULE:NAME, whose settings become flags.

    >>> outside_protocols(["RUN", "--protocol", "knn", "mine:PROTOCOL", "--data", "hf:x", "--protocol=other:ONE"])
    ['mine:PROTOCOL', 'other:ONE']
    """
    found, inside = [], False
    for argument in arguments:
        flag, _, value = argument.partition("=")
        if argument.startswith("--"):
            inside = flag == "--protocol"
            named = value if inside else ""
        else:
            named = argument if inside else ""
        found += [named] if ":" in named else []
    return found
