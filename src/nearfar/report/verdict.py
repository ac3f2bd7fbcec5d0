"""The verdict on a run in sentences: its health, what was trained, and how it compares with the baselines."""

import math
from collections.abc import Callable
from dataclasses import replace

from nearfar.data.dataset import counted
from nearfar.evaluation.protocols import PROTOCOLS
from nearfar.evaluation.results import BY, Results, Row, interval, shown
from nearfar.metric_text import metric_text, percent
from nearfar.report.difference import difference
from nearfar.report.judgement import Beside, differences, is_headline, judge, same_measure
from nearfar.report.next_step import next_step
from nearfar.report.run import HealthVerdict, RunRecord

_LEVELS = ("good", "note", "warning", "error")  # the worst last
__all__ = [
    "clearly_better",
    "comparisons",
    "difference",
    "first_line",
    "health",
    "is_headline",
    "overall",
    "training",
    "value_and_interval",
    "verdict",
]
_BASELINES = {
    "raw": "raw input",
    "prepared": "network input",
    "untrained": "the untrained encoder",
    "random": "a random network",
}


def verdict(run: RunRecord) -> tuple[str, list[str]]:
    """The level of a run, and the verdict in sentences.

    First whether it is better, the same or WORSE, then its health, what to try next, what was trained, and the numbers.
    """
    level, first = first_line(run)
    _, health_sentence = overall(run)
    lines = [first, *([health_sentence] if health_sentence != first else [])]
    if (step := next_step(run)) is not None:
        lines.append(str(step))
    if run.selection is not None and run.selection != first:
        lines.append(run.selection)
    results = run.results or Results()
    return level, [*lines, training(run), *comparisons(list(results.rows), results), *run.problems]


def first_line(run: RunRecord) -> tuple[str, str]:
    """The verdict in one line, and its level: better, same or WORSE if that was measured, else the run's health.

    The level is the worse one of evaluation and health: a run that ended worse than its start is never good.
    """
    level, sentence = overall(run)
    judged = judge(run.results) if run.finished is not False else None
    if run.selection is not None and run.adaptation.get("kept") == "start":
        return max(level, "warning", key=_LEVELS.index), run.selection
    if judged is None:
        return level, sentence
    return max(level, judged.level, key=_LEVELS.index), f"{judged.line}."


def training(run: RunRecord) -> str:
    """What was trained, on which data, and for how long."""
    text = f"{run.setting('method') or 'An encoder'} was trained"
    if data := run.setting("data"):
        text += f" on {data}"
    if backbone := run.setting("backbone"):
        text += f" with the backbone {backbone}"
    if not run.metrics:
        return f"{text}. The run folder has no training metrics."
    text += f" for {counted(run.done, 'step')}"
    if (epoch := run.epoch) is not None:
        planned = run.config.get("epochs")
        text += f" (epoch {epoch:.3g} of {planned:g}: not finished)" if run.finished is False else f" (epoch {epoch:g})"
    text += _course(run, "loss", "; the loss", lambda value: f"{value:.3g}")
    return f"{text}{_course(run, 'knn', ', and k-NN on held-out samples', percent)}."


def _course(run: RunRecord, key: str, subject: str, text: Callable[[float], str]) -> str:
    """How a metric went from its first to its last measurement."""
    found = [
        (line["step"], float(value))
        for line in run.metrics
        if isinstance(value := line.get(key), int | float) and math.isfinite(value)
    ]
    if not found:
        return ""
    last, value = found[-1]
    when = f" at step {last:,.0f}" if last < run.done or len(found) == 1 else ""
    if len(found) == 1:
        return f"{subject} was {text(value)}{when}"
    return f"{subject} went from {text(found[0][1])} to {text(value)}{when}"


def health(verdicts: list[HealthVerdict]) -> tuple[str, str]:
    """A level ("good", "note", "warning" or "error") and a sentence; a warning holds until a later "good"."""
    errors = [verdict for verdict in verdicts if verdict.level == "error"]
    if errors:
        return "error", f"Not healthy: {errors[-1].text}"
    judged = [verdict for verdict in verdicts if verdict.level in ("good", "warning")]
    if not judged:
        return "note", f"Not judged: {verdicts[-1].text if verdicts else 'no health verdict was recorded'}"
    last = judged[-1]
    return last.level, f"{'Look closer' if last.level == 'warning' else 'Healthy'}: {last.text}"


def overall(run: RunRecord) -> tuple[str, str]:
    """The health of a run, given also whether it finished and how its evaluation went.

    A run that is not finished is not judged; one that is no better than untrained is not healthy. A warning at step 0,
    such as too few steps, holds until an evaluation says otherwise.
    """
    level, sentence = health(run.verdicts)
    if level in ("error", "warning"):
        return level, sentence
    if any(problem.startswith("verdicts.json") for problem in run.problems):
        return "note", "Not judged: verdicts.json could not be read"
    found = sentence.removeprefix("Healthy: ").rstrip(".")
    warned = [verdict for verdict in run.verdicts if verdict.level == "warning"]
    if warned:
        sentence += f"; {counted(len(warned), 'earlier warning')}"
    if run.finished is False:
        return "note", f"Not finished: {found} so far" if level == "good" else "Not finished, so not judged"
    if level == "note":
        return level, sentence
    results = run.results or Results()
    rows = [row for row in results.rows if row.protocol != "geometry"]  # geometry is no task
    judged = judge(results)
    start = None if judged is None else judged.start
    if start in ("same", "WORSE"):
        words = "not clearly better" if start == "same" else "WORSE"
        return "warning", f"Look closer: {words} than its start. In training: {found}"
    lacking = "it was not evaluated on a task" if results.rows else "it was not evaluated"
    lacking = "the untrained encoder was not measured" if rows else lacking
    if start is None and any(verdict.step == 0 for verdict in warned):
        return (
            "note",
            f"Not judged: {lacking}, and a warning came before training. In training: {found}",
        )
    return level, sentence if rows else f"Healthy in training: {sentence.removeprefix('Healthy: ')}; {lacking}"


def clearly_better(row: Row, other: Row, *, unknown: bool) -> bool:
    """Whether the interval of a row is apart from another's, on the better side; `unknown` without intervals."""
    if row.low is None or row.high is None or other.low is None or other.high is None:
        return unknown
    return row.high < other.low if row.style.less_is_better else row.low > other.high


def comparisons(rows: list[Row], results: Results | None = None) -> list[str]:
    """A sentence for each headline metric: the trained encoder and its baselines, with intervals.

    Args:
        rows: the numbers.
        results: with the comparisons on the same samples; None: differences are taken from the intervals.
    """
    known = results if results is not None else Results(rows)
    sentences = []
    for row in rows:
        if row.encoder != "trained" or not is_headline(row):
            continue
        protocol = PROTOCOLS.get(row.protocol)
        name = (protocol.title if protocol is not None else None) or row.protocol
        samples = counted(row.n, f"{row.split} sample")
        sentence = f"{name} reaches {value_and_interval(row)} {row.metric} on {samples} of {row.data}"
        baselines = [_compared(each, known) for each in differences(row, known) if each.role in ("start", "baseline")]
        sentences.append(f"{sentence}: {'; '.join(baselines)}." if baselines else f"{sentence}; without a baseline.")
    return sentences


def _compared(beside: Beside, results: Results) -> str:
    row, other = beside.row, _row_of(beside, results)
    who = _BASELINES.get(beside.name, beside.name)
    value = (
        value_and_interval(other)
        if other is not None
        else metric_text(row.value - beside.difference, row.style.decimals)
    )
    if beside.low is None or beside.high is None:
        return f"{who} has {value}"
    if beside.word == "same":
        return f"not clearly different from {who} at {value}"
    if beside.word == "WORSE":
        return f"worse than {who} at {value}"
    gap, (low, high) = abs(beside.difference), sorted((abs(beside.low), abs(beside.high)))
    if row.style.decimals is not None:
        amount = f"{gap:.2f} ({low:.2f} to {high:.2f})"
    else:
        amount = f"{100 * gap:.1f} points ({100 * low:.1f} to {100 * high:.1f})"
    if beside.difference > 0 and row.value > beside.difference:
        return f"{row.value / (row.value - beside.difference):.1f} times {who} at {value}, {amount} more"
    return f"{amount} {'more' if beside.difference > 0 else 'less'} than {who} at {value}"


def _row_of(beside: Beside, results: Results) -> Row | None:
    """The number of the other encoder."""
    name, _, protocol = beside.name.partition(BY)
    row = replace(beside.row, protocol=protocol or beside.row.protocol)
    return next((other for other in results.rows if other.encoder == name and same_measure(row, other)), None)


def value_and_interval(row: Row) -> str:
    return f"{shown(row)} {interval(row)}".strip()
