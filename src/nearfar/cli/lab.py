"""`nearfar lab`: the mathematics run, with what theory predicts beside what was measured."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.cli.parser import Parser

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.lab.findings import Findings

EXPERIMENTS = {
    "bound": "log N - L against the true mutual information and its ceiling; InfoNCE, NWJ, DV",
    "temperature": "the gradient in closed form, and who gets it at which temperature",
    "negatives": "how many are enough, what false ones do, what debiasing mends",
    "collapse": "complete and to a few dimensions: what each number shows of it",
    "nce": "a density and its normaliser learned by telling data from noise",
    "views": "what two views share is what can be learned",
}


def main(arguments: list[str]) -> int:
    words = "\n".join(f"  {name:<12} {what}" for name, what in EXPERIMENTS.items())
    parser = Parser(
        prog="nearfar lab",
        description="Run an experiment on data made on the spot: prints tables, writes a figure and the numbers, and "
        "says of each prediction whether it was measured so. The exit status is 1 where one was not.",
        epilog=f"experiments:\n{words}\n  {'all':<12} one after the other",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "all"], metavar="EXPERIMENT", help="one of those below")
    parser.add_argument("-o", "--out", default="lab", help="folder for NAME.png and NAME.json (default: lab)")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    parser.add_argument("--quick", action="store_true", help="fewer samples and steps: seconds instead of a minute")
    options = parser.parse_args(arguments)
    if not 0 <= options.seed < 2**63:
        parser.error(f"--seed is {options.seed}, expected a whole number of at least 0 and below 2^63")
    folder = Path(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        parser.error(f"--out is {options.out}, which is or is in a file; expected a folder, or a name for a new one")

    from rich.console import Console

    from nearfar import __version__
    from nearfar.lab.experiments import EXPERIMENTS as FUNCTIONS
    from nearfar.lab.figures import draw

    console, agrees = Console(), True
    for name in EXPERIMENTS if options.experiment == "all" else [options.experiment]:
        with console.status(name) as status:
            found = FUNCTIONS[name](
                options.seed, quick=options.quick, tell=lambda doing, n=name: status.update(f"{n}: {doing}")
            )
        show(console, found)
        figure = draw(found, folder / f"{name}.png")
        numbers = found.write(folder / f"{name}.json", version=__version__, seed=options.seed, quick=options.quick)
        console.print(f"figure: {figure}\nnumbers: {numbers}", soft_wrap=True, markup=False, highlight=False)
        agrees = agrees and found.agrees
    return 0 if agrees else 1


def show(console: "Console", found: "Findings") -> None:
    """The tables, and each prediction beside its measurement."""
    from rich.table import Table

    for each in found.tables:
        table = Table(title=each.title)
        for place, column in enumerate(each.columns):
            table.add_column(column, justify="left" if isinstance(each.rows[0][place], str) and place == 0 else "right")
        for row in each.rows:
            table.add_row(*(cell if isinstance(cell, str) else f"{cell:.4g}" for cell in row))
        console.print(table)
    table = Table(title="theory beside measurement")
    for column in ("what", "kind", "theory", "measured", "may miss by", ""):
        table.add_column(column, justify="left" if column in ("what", "kind", "") else "right")
    for claim in found.claims:
        mark = "[green]agrees[/]" if claim.agrees else "[red]DIFFERS[/]"
        table.add_row(
            claim.what,
            claim.kind,
            f"{claim.relation} {claim.predicted:.4g}",
            f"{claim.measured:.4g}",
            f"{claim.tolerance:.2g}",
            mark,
        )
    console.print(table)
    console.print(found.theory, markup=False, highlight=False)
    console.print(found.verdict(), style="green" if found.agrees else "red", markup=False, highlight=False)
