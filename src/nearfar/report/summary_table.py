"""The numbers on a console of 80 columns: a row for each protocol, or every metric beside all other encoders."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nearfar.evaluation.results import Results, Row, interval, shown
from nearfar.messages import shorten
from nearfar.metric_text import metric_text
from nearfar.report.judgement import Beside, best_baselines, called, differences, is_headline, subject, title

_WIDTH, _NAME, _TITLE = 80, 24, 26  # columns of the terminal, of an encoder's name, and of a protocol's
_WIDE, _BAR = 110, 10  # columns from which bars are drawn, and columns of a bar
_COLORS = {"better": "green", "same": "yellow", "WORSE": "red"}


def headline_rows(results: Results, width: int = _WIDTH) -> RenderableType:
    """A row for each protocol: the encoder, its start, its best baseline, and better, same or WORSE.

    Encoders that it is compared with have a row each below it. With 110 columns there are bars.
    """
    who = subject(results)
    main = [row for row in results.rows if row.encoder == who and is_headline(row)]
    several = len({(row.data, row.split) for row in main}) > 1
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=_TITLE)
    for _ in range(3):
        table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True)
    for row in main:
        beside = differences(row, results)
        start = [each for each in beside if each.role == "start"]
        best = best_baselines(beside)
        own = _cell("trained" if who == "trained" else "encoder", row.value, row, width)
        found = [*start[:1], *best[:1]]
        cells = [_cell(_called(each), row.value - each.difference, row, width) for each in found]
        table.add_row(_title(row, several), own, *cells, *[""] * (2 - len(cells)), _words(start[:1], best[:1]))
        for other in (each for each in beside if each.role == "encoder"):
            cell = metric_text(row.value - other.difference, row.style.decimals)
            table.add_row(f"  than {escape(shorten(other.name, _NAME))}", Text(cell), "", "", _word(other))
    return table


def _title(row: Row, several: bool) -> str:
    metric = "" if row.metric == "accuracy" else f" {row.metric}"
    return escape(f"{title(row)}{metric}{f', {row.data} {row.split}' if several else ''}")


def _called(beside: Beside) -> str:
    return "start" if beside.role == "start" else called(beside.name)


def _cell(name: str, value: float, row: Row, width: int) -> Text:
    style = row.style
    text = f"{name} {metric_text(value, style.decimals):>6}"
    if width >= _WIDE and style.decimals is None and style.least == 0:
        return Text(f"{text} {_bar(value)}")
    return Text(text)


def _bar(share: float) -> str:
    """
    >>> _bar(0.5), _bar(0.0125)
    ('█████     ', '▏         ')
    """
    eighths = round(8 * _BAR * min(1.0, max(0.0, share)))
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(_BAR)


def _words(start: Sequence[Beside], best: Sequence[Beside]) -> str:
    """One word for both comparisons: the worse one."""
    order = ("WORSE", "same", "better")
    found = [*start, *best]
    return "" if not found else _word(min(found, key=lambda each: order.index(each.word)))


def _word(beside: Beside) -> str:
    return f"[{_COLORS[beside.word]}]{beside.word}[/]"


def all_metrics(results: Results) -> RenderableType:
    """A block for each metric of the first encoder, beside all others; notes below."""
    first = subject(results)
    main = [row for row in results.rows if row.encoder == first]
    measured = {_measure(row) for row in main}
    alone = [row for row in results.rows if _measure(row) not in measured]  # such as DTW, of raw samples only
    blocks = [part for row in main for part in _block(row, differences(row, results), results)]
    blocks += [part for row in alone for part in _block(row, [], results)]
    return Group(*blocks, *(Text(note, style="dim") for note in results.notes))


def _block(row: Row, beside: Sequence[Beside], results: Results) -> list[RenderableType]:
    heading = f"{results.protocol(row)}: {row.metric} on {row.n:,} {row.split} samples of "
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left", "right", "left"):
        table.add_column(justify=justify)
    table.add_row(f"  {escape(shorten(row.encoder, _NAME))}", shown(row), interval(row).strip("()"), "", "")
    for each in beside:
        value = metric_text(row.value - each.difference, row.style.decimals)
        other = next((x for x in results.rows if x.encoder == each.name and _measure(x) == _measure(row)), None)
        table.add_row(
            f"  {escape(shorten(each.name, _NAME))}",
            value,
            interval(other).strip("()") if other is not None else "",
            each.amount,
            _word(each),
        )
    text = Text(heading + shorten(row.data, max(10, _WIDTH - len(heading))), style="bold", overflow="ellipsis")
    return [text, table]


def _measure(row: Row) -> tuple[str, str, str, str]:
    return row.protocol, row.metric, row.data, row.split
