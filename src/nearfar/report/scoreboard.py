"""The numbers that a verdict rests on, as bars: the encoder, its start and its best baseline, by each main metric."""

from html import escape

from nearfar.evaluation.results import Results, Row, interval
from nearfar.metric_text import metric_text
from nearfar.report.judgement import Beside, best_baselines, called, differences, is_headline, subject, title

_ROLES = {"start": "start", "baseline": "best baseline"}


def scoreboard(results: Results | None) -> str:
    """A table with bars; empty without numbers. Bars go from 0 to 100 %; other metrics have numbers alone."""
    if results is None:
        return ""
    who = subject(results)
    rows = [row for row in results.rows if row.encoder == who and is_headline(row)]
    several = len({(row.data, row.split) for row in rows}) > 1
    body = "".join(_measure(row, results, several) for row in rows)
    if not body:
        return ""
    titles = "".join(f'<th scope="col">{each}</th>' for each in ("encoder", "value", "bar", "difference"))
    head = f"<thead><tr>{titles}</tr></thead>"
    caption = '<caption class="away">Main numbers: the encoder, its start and its best baseline</caption>'
    return f'<table class="scores">{caption}{head}{body}</table>'


def _measure(row: Row, results: Results, several: bool) -> str:
    beside = differences(row, results)
    found = [each for each in beside if each.role == "start"][:1] + best_baselines(beside)[:1]
    samples = f"{row.n:,} {row.split} samples" + (f" of {row.data}" if several else "")
    heading = f"{title(row)}: {row.metric}, {samples}"
    lines = _line("trained" if row.encoder == "trained" else row.encoder, row.value, row, interval(row), "")
    for each in found:
        name = _ROLES[each.role] + (f" ({called(each.name)})" if each.role == "baseline" else "")
        lines += _line(name, row.value - each.difference, row, "", _word(each))
    return f'<tbody><tr><th colspan="4" scope="rowgroup">{escape(heading)}</th></tr>{lines}</tbody>'


def _line(name: str, value: float, row: Row, extent: str, word: str) -> str:
    style = row.style
    bar = ""
    if style.decimals is None and style.least == 0:
        share = 100 * min(1.0, max(0.0, value))
        bar = f'<span class="bar{"" if word else " own"}" style="width:{share:.1f}%"></span>'
        bar = f'<span class="track">{bar}</span>'
    said = escape(extent.strip("()")) if extent else word
    return (
        f'<tr><th scope="row">{escape(name)}</th><td class="number">{escape(metric_text(value, style.decimals))}</td>'
        f'<td class="track-of">{bar}</td><td>{said}</td></tr>'
    )


def _word(beside: Beside) -> str:
    level = {"better": "good", "same": "warning", "WORSE": "error"}[beside.word]
    return f'<span class="level {level}">{beside.word}</span> <small>{escape(beside.amount)}</small>'
