"""`nearfar check`: is the machine right, and are loss and gradient exact here?"""

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.cli.parser import Parser
from nearfar.progress import stage

if TYPE_CHECKING:
    from nearfar.distributed.certificate import CertificateRow
    from nearfar.distributed.variants import Subject


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar check",
        description="Compare every loss and its gradient with its plain definition in float64 on this machine, "
        "and a few training steps of every method, in tiles, types, and on a batch that processes share, with one "
        "process in float64; then run one batch whose similarity matrix is too large to store. Exits with 1 "
        "where anything is off by more than its tolerance.",
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="RUN",
        help="a run folder, or MODULE:NAME of your own method: its training steps alone are compared",
    )
    parser.add_argument("--device", default="cpu", help="where the losses are computed, such as cuda (default: cpu)")
    parser.add_argument("--pairs", type=int, default=8192, help="pairs of the large batch (default: 8192)")
    parser.add_argument(
        "--processes", type=int, default=2, help="processes that share a batch; 1 skips this check (default: 2)"
    )
    parser.add_argument(
        "--rows", type=int, default=12, help="samples of a run's data in each of two batches (default: 12)"
    )
    options = parser.parse_args(arguments)
    for name, least in (("pairs", 1), ("processes", 1), ("rows", 8)):
        if getattr(options, name) < least:
            parser.error(f"--{name} is {getattr(options, name)}, expected at least {least}")

    import torch
    from rich.console import Console

    console = Console()
    if options.device != "cpu":  # one that is not there says so before anything else runs
        from nearfar.devices import find_device

        options.device = find_device(options.device)
    device = torch.device(options.device)
    console.print(
        f"Python {platform.python_version()}, torch {torch.__version__}, {device.type}, "
        f"{torch.get_num_threads()} threads"
    )
    off = 0 if options.what else check_losses(console, device, options.pairs)
    rows = check_methods(console, options.what, options.processes, options.rows)
    off += sum(row.off for row in rows)
    if off or not all(row.passed for row in rows):
        fault = f"{off} row{'s are' if off > 1 else ' is'} off by more than the tolerance"
        fault = fault if off else f"{'this' if options.what else 'a'} method is wrong, as said above"
        console.print(f"[red]{fault}[/]: do not train with this" + ("" if options.what else " here; please report it"))
        return 1
    what = "this method's training agrees" if options.what else "every loss and every gradient agrees"
    console.print(f"[green]{what} with its definition here[/]")
    return 0


def check_losses(console: Any, device: Any, pairs: int) -> int:
    """Every loss on this device, and a large batch; how many are wrong."""
    from nearfar.distributed.check import TOLERANCE, compare_losses, time_large_batch, worst_by_precision
    from nearfar.losses.engine.precision import PRECISIONS

    with stage(console, "comparing losses and gradients"):
        found = list(compare_losses(device, precisions=PRECISIONS))
    rows = (
        (r.loss, "auto" if r.tile is None else str(r.tile), r.value_error, r.gradient_error, r.passed)
        for r in found
        if r.precision == "exact"
    )
    title = f"losses: float32 in tiles, against the reference in float64, to {TOLERANCE:g}"
    show(console, title, ("loss", "tile", "value", "gradient"), rows)
    show(
        console,
        f"precision of the products of similarities on {device.type}, by {engine_on(device)}: the worst of all losses",
        ("precision", "value", "gradient"),
        ((w.precision, w.value_error, w.gradient_error, w.passed) for w in worst_by_precision(found)),
    )
    with stage(console, f"NT-Xent over {pairs:,} pairs, forward and backward"):
        seconds, loss = time_large_batch(pairs, device)
    matrix = 4 * (2 * pairs) ** 2 / 2**30
    console.print(
        f"NT-Xent over {pairs:,} pairs, forward and backward, tile by tile: {seconds:.2f} s, "
        f"loss {loss:.3f} (the whole matrix would take {matrix:.1f} GiB)"
    )
    return sum(not row.passed for row in found)


def engine_on(device: Any) -> str:
    """The engine that losses take by themselves on this device."""
    from nearfar.losses.engine.backends import has_triton

    return "Triton" if device.type == "cuda" and has_triton() else "tiles"


def check_methods(console: Any, what: str | None, processes: int, rows: int) -> list["CertificateRow"]:
    """Training steps of every method, of a run's, or of one's own, in every variant."""
    from nearfar.distributed.certificate import certify_methods

    found: list[CertificateRow] = []
    with stage(console, "reading" if what else "building a small instance of every method") as say:
        for of_method in certify_methods(subjects(what, rows), processes=processes, said=say):
            found += of_method
    columns = ("method", "trained", "loss", "gradient", "state", "tolerance")
    cells = ((r.what, r.variant, r.value_error, r.gradient_error, r.state_error, r.tolerance, r.passed) for r in found)
    title = "methods: a few training steps against one process with dense matrices; relative errors"
    show(console, title, columns, cells)
    for note in dict.fromkeys(f"{row.what}: {row.note}" for row in found if row.note):
        console.print(f"[red]{note}[/]")
    return found


def subjects(what: str | None, rows: int) -> list["Subject"]:
    from nearfar.methods.check import subject_from, toy_subjects

    if what is None:
        return toy_subjects()
    if ":" in what and not Path(what).exists():
        return [subject_from(what)]
    if not (Path(what) / "config.yaml").is_file():
        raise FileNotFoundError(f"{what} is not a run folder: it has no config.yaml; expected one, or MODULE:NAME")
    from nearfar.plugins import named_by
    from nearfar.training.check_run import subject_of_run

    with named_by(Path(what) / "config.yaml"):
        return [subject_of_run(Path(what), rows)]


def show(console: Any, title: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    """A table whose last column says whether a row is right."""
    from rich.table import Table

    table = Table(title=title)
    for name in (*columns, ""):
        table.add_column(name, justify="left" if name in ("loss", "method", "trained", "precision", "") else "right")
    for *cells, passed in rows:
        words = [f"{cell:.0e}" if isinstance(cell, float) else cell for cell in cells]
        table.add_row(*words, "[green]right[/]" if passed else "[red]WRONG[/]")
    console.print(table)
