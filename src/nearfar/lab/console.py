"""The findings of an experiment on a console."""

from rich.console import Console
from rich.table import Table

from nearfar.lab.findings import Findings


def print_findings(console: Console, found: Findings) -> None:
    """The tables, and each prediction with its measurement."""
    for each in found.tables:
        table = Table(title=each.title)
        for place, column in enumerate(each.columns):
            table.add_column(column, justify="left" if isinstance(each.rows[0][place], str) and place == 0 else "right")
        for row in each.rows:
            table.add_row(*(cell if isinstance(cell, str) else f"{cell:.4g}" for cell in row))
        console.print(table)
    table = Table("what", "kind", title="theory and measurement")
    for column in ("theory", "measured", "tolerance"):
        table.add_column(column, justify="right")
    table.add_column()
    for claim in found.claims:
        numbers = f"{claim.relation} {claim.predicted:.4g}", f"{claim.measured:.4g}", f"{claim.tolerance:.2g}"
        mark = "[green]agrees[/]" if claim.agrees else "[red]DIFFERS[/]"
        table.add_row(claim.what, claim.kind, *numbers, mark)
    console.print(table)
    console.print(found.theory, markup=False, highlight=False)
    console.print(found.verdict(), style="green" if found.agrees else "red", markup=False, highlight=False)
