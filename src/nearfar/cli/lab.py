"""`nearfar lab`: experiments that compare predictions of theory with measurements."""

import argparse
from pathlib import Path

from nearfar.cli.parser import Parser

EXPERIMENTS = {
    "bound": "log N - L, the true mutual information and its ceiling; InfoNCE, NWJ, DV",
    "temperature": "the gradient in closed form, and how temperature distributes it",
    "negatives": "how many are enough, the effect of false ones, and of debiasing",
    "collapse": "complete and dimensional collapse, and which metrics show it",
    "nce": "a density and its normalizer, learned by telling data from noise",
    "views": "what two views share is what can be learned",
}


def main(arguments: list[str]) -> int:
    listed = "\n".join(f"  {name:<12} {what}" for name, what in EXPERIMENTS.items())
    parser = Parser(
        prog="nearfar lab",
        description="Run an experiment on generated data: print tables, write a figure and the numbers, and compare "
        "each prediction with its measurement. The exit status is 1 where one does not agree.",
        epilog=f"experiments:\n{listed}\n  {'all':<12} all of them",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "all"], metavar="EXPERIMENT", help="one of those below")
    parser.add_argument("-o", "--out", default="lab", help="folder for NAME.png and NAME.json (default: lab)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
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
    from nearfar.lab.console import print_findings
    from nearfar.lab.experiments import EXPERIMENTS as FUNCTIONS
    from nearfar.lab.figures import draw

    console, agrees = Console(), True
    for name in EXPERIMENTS if options.experiment == "all" else [options.experiment]:
        with console.status(name) as status:
            found = FUNCTIONS[name](
                options.seed, quick=options.quick, progress=lambda doing, n=name: status.update(f"{n}: {doing}")
            )
        print_findings(console, found)
        figure = draw(found, folder / f"{name}.png")
        numbers = found.write(folder / f"{name}.json", version=__version__, seed=options.seed, quick=options.quick)
        console.print(f"figure: {figure}\nnumbers: {numbers}", soft_wrap=True, markup=False, highlight=False)
        agrees = agrees and found.agrees
    return 0 if agrees else 1
