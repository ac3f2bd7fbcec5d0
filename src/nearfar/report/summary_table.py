"""The few numbers that a person came for, in 80 columns: each main metric, the encoder beside all others."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nearfar.evaluation.results import Results, Row, interval, shown
from nearfar.messages import shorten
from nearfar.metric_text import metric_text
from nearfar.report.judgement import Beside, differences, is_headline, subject

_WIDTH, _NAME = 80, 24  # columns of the terminal, and of a name
_COLORS = {"better": "green", "same": "yellow", "WORSE": "red"}


def summary_table(results: Results) -> RenderableType:
    """A block for each headline metric of the first encoder; notes below. All other metrics are in the file."""
    first = subject(results)
    main = [row for row in results.rows if row.encoder == first and is_headline(row)]
    measured = {(row.protocol, row.metric, row.data, row.split) for row in main}
    alone = [  # such as DTW, which is measured on raw samples only
        row
        for row in results.rows
        if is_headline(row) and (row.protocol, row.metric, row.data, row.split) not in measured
    ]
    blocks = [part for row in main for part in _block(row, differences(row, results), results)]
    blocks += [part for row in alone for part in _block(row, [], results)]
    notes = [Text(note, style="dim") for note in results.notes]
    return Group(*blocks, *notes)


def _block(row: Row, beside: Sequence[Beside], results: Results) -> list[RenderableType]:
    samples = f"{row.n:,} {row.split} samples"
    title = f"{results.protocol(row)}: {row.metric} on {samples} of "
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left", "right", "left"):
        table.add_column(justify=justify)
    table.add_row(f"  {escape(shorten(row.encoder, _NAME))}", shown(row), interval(row).strip("()"), "", "")
    for each in beside:
        value = metric_text(row.value - each.difference, row.style.decimals)
        other = next((x for x in results.rows if x.encoder == each.name and _measure(x) == _measure(row)), None)
        color = _COLORS[each.word]
        table.add_row(
            f"  {escape(shorten(each.name, _NAME))}",
            value,
            interval(other).strip("()") if other is not None else "",
            each.amount,
            f"[{color}]{each.word}[/]",
        )
    heading = Text(title + shorten(row.data, max(10, _WIDTH - len(title))), style="bold", overflow="ellipsis")
    return [heading, table]


def _measure(row: Row) -> tuple[str, str, str, str]:
    return row.protocol, row.metric, row.data, row.split
