"""A recipe trained again, and its numbers compared with those it reached."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from nearfar.config import TrainConfig, completed
from nearfar.evaluation.results import Row
from nearfar.recipes import Number, Recipe
from nearfar.settings import build
from nearfar.training.train import free_folder, run
from nearfar.yaml_reader import read_yaml


class RerunNumber(NamedTuple):
    """A number of a recipe, and the value in another run."""

    number: Number
    value: float

    @property
    def verdict(self) -> str:
        """ "as before" within the interval; else "more" or "LESS"."""
        low = self.number.value if self.number.low is None else self.number.low
        high = self.number.value if self.number.high is None else self.number.high
        return "LESS" if self.value < low else "more" if self.value > high else "as before"


def compare_rerun(recipe: Recipe, rows: Sequence[Row]) -> list[RerunNumber]:
    """The numbers of a recipe with those of another run, as far as the run measured them."""
    found = {(row.protocol, row.metric): row.value for row in reversed(rows) if row.encoder == "trained"}
    return [
        RerunNumber(number, found[measure] * (100 if number.unit == "%" else 1))
        for number in recipe.numbers
        if (measure := (number.protocol or "", number.metric or "")) in found
    ]


def rerun(recipe: Recipe, out: str | None) -> int:
    """Train a recipe again, print its numbers before and now, and return the exit status."""
    measured = [number for number in recipe.numbers if number.protocol]
    if not measured:
        reason = f"come from another command: {recipe.command}" if recipe.numbers else "were not measured"
        raise ValueError(f"the numbers of {recipe.name} {reason}; nearfar train --config {recipe.name} trains it")
    config: TrainConfig = build(TrainConfig, completed(read_yaml(recipe.path)), recipe.name)
    folder = free_folder(config) if out is None else Path(out)
    console = Console()
    results = run(config, folder, console=console)
    found = compare_rerun(recipe, results.rows)
    table = Table(title=f"{recipe.name}, run again")
    for column in ("what", "reached", "now", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for each in found:
        color = "red" if each.verdict == "LESS" else "green"
        before = str(each.number).removeprefix(f"{each.number.what} ")
        table.add_row(each.number.what, before, each.number.shown(each.value), f"[{color}]{each.verdict}[/]")
    console.print(table)
    console.print(f"run: {folder}", soft_wrap=True, markup=False, highlight=False)
    if len(found) < len(measured):
        raise ValueError(f"{len(measured) - len(found)} of {len(measured)} numbers were not measured by this run")
    return int(any(each.verdict == "LESS" for each in found))
