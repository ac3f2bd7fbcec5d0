"""`nearfar recipes`: runs that are known, what each reached, and one of them run again."""

from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.cli.parser import Parser

if TYPE_CHECKING:
    from nearfar.recipes import Recipe


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar recipes",
        description="List the recipes: what each trains, on which data, what it reached, how long that took, and the "
        "command to run it. Of one recipe, print all of it, as YAML to keep and change.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this one in full")
    parser.add_argument(
        "--rerun", action="store_true", help="train it again and compare; the exit status is 1 where it reaches less"
    )
    parser.add_argument("--out", help="with --rerun, the run folder (default: the next free one under runs/)")
    options = parser.parse_args(arguments)
    if options.name is None and (options.rerun or options.out is not None):
        parser.error("--rerun and --out need the NAME of a recipe")
    if options.out is not None and not options.rerun:
        parser.error("--out has a place beside --rerun alone")

    from nearfar.recipes import recipe, recipes

    if options.name is None:
        for each in recipes():
            print("\n".join(lines(each)), end="\n\n")
        print("nearfar recipes NAME prints one in full; --rerun trains it again, where a run measures its numbers.")
        return 0
    chosen = recipe(options.name)
    if options.rerun:
        return rerun(chosen, options.out)
    print(in_full(chosen))
    return 0


def lines(recipe: "Recipe") -> list[str]:
    """What is known of a recipe, in a few lines."""
    reached = ", ".join(map(str, recipe.numbers)) or "was not measured"
    found = [recipe.name, f"  {recipe.about}", f"  on      {recipe.data}", f"  reached {reached}"]
    if recipe.numbers:
        found.append(f"  by      {recipe.command}  ({recipe.file})")
        found.append(f"  time    {recipe.time or 'was not noted'}")
    return [*found, f"  run     {recipe.run}"]


def in_full(recipe: "Recipe") -> str:
    """The file, and behind it as comments what it reached: still YAML."""
    told = [f"on {recipe.data}"]
    for number in recipe.numbers:
        beside = "; ".join(f"{who} {number.shown(value)}" for who, value in number.beside.items())
        told.append(f"reached: {number}" + (f"; {beside}" if beside else ""))
    if recipe.numbers:
        told += [f"by: {recipe.command} ({recipe.file})", f"time: {recipe.time or 'was not noted'}"]
    else:
        told.append("reached: was not measured")
    return "\n".join([recipe.text.rstrip(), "", *(f"# {line}" for line in [*told, f"run: {recipe.run}"])])


def rerun(recipe: "Recipe", out: str | None) -> int:
    """Train it, and hold what it reaches beside what it reached."""
    if not any(number.protocol for number in recipe.numbers):
        why = f"come from another command: {recipe.command}" if recipe.numbers else "are not known: it was not measured"
        raise ValueError(f"the numbers of {recipe.name} {why}; nearfar train --config {recipe.name} trains it")

    from rich.console import Console
    from rich.table import Table

    from nearfar.config import TrainConfig, build, completed, read_yaml
    from nearfar.recipes import again
    from nearfar.training.train import free_folder, run

    config: TrainConfig = build(TrainConfig, completed(read_yaml(recipe.path)), recipe.name)
    folder = free_folder(config) if out is None else Path(out)
    console = Console()
    results = run(config, folder, console=console)
    if results is None:
        return 130
    found = again(recipe, results.rows)
    table = Table(title=f"{recipe.name}, run again")
    for column in ("what", "reached", "now", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for each in found:
        colour = "red" if each.verdict == "LESS" else "green"
        before = str(each.number).removeprefix(f"{each.number.what} ")
        table.add_row(each.number.what, before, each.number.shown(each.value), f"[{colour}]{each.verdict}[/]")
    console.print(table)
    console.print(f"run: {folder}", soft_wrap=True, markup=False, highlight=False)
    measured = [number for number in recipe.numbers if number.protocol]
    if len(found) < len(measured):
        raise ValueError(f"{len(measured) - len(found)} of {len(measured)} numbers were not measured by this run")
    return int(any(each.verdict == "LESS" for each in found))
