"""The verdict on a run in sentences: its health, what was trained, and how it compares with the baselines."""

import math
import re
from collections.abc import Callable

from nearfar.data.dataset import counted
from nearfar.evaluation.protocols import PROTOCOLS
from nearfar.evaluation.results import Row, interval, shown
from nearfar.metric_text import decimals, percent
from nearfar.report.run import HealthVerdict, RunRecord

LESS_IS_BETTER = ("word error rate", "character error rate", "median rank", "mean rank", "EER", "calibration error")
_BASELINES = {"raw": "raw input", "prepared": "the encoder's input", "untrained": "the untrained encoder"}


def verdict(run: RunRecord) -> tuple[str, list[str]]:
    """The level of a run's health, and the verdict in sentences, the one about health first."""
    level, first = overall(run)
    rows = list(run.results.rows) if run.results is not None else []
    return level, [first, training(run), *comparisons(rows), *run.problems]


def training(run: RunRecord) -> str:
    """What was trained, on which data, and for how long."""
    text = f"{run.setting('method') or 'An encoder'} was trained"
    if data := run.setting("data"):
        text += f" on {data}"
    if backbone := run.setting("backbone"):
        text += f" with the backbone {backbone}"
    if not run.metrics:
        return f"{text}. No training metrics are in the run folder."
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
        sentence += f"; {counted(len(warned), 'earlier warning')}, see Health"
    if run.finished is False:
        return "note", f"Not finished: {found} so far" if level == "good" else "Not finished, so not judged"
    if level == "note":
        return level, sentence
    measured = list(run.results.rows) if run.results is not None else []
    rows = [row for row in measured if row.protocol != "geometry"]  # geometry is no task
    better = [
        clearly_better(row, other, unknown=True)
        for row in rows
        for other in rows
        if row.encoder == "trained" and other.encoder == "untrained" and is_headline(row) and _same_measure(row, other)
    ]
    if better and not any(better):
        return "warning", f"Look closer: {found}; but it is not clearly better than the untrained encoder"
    lacking = "it was not evaluated on a task" if measured else "it was not evaluated"
    lacking = "the untrained encoder was not measured" if rows else lacking
    if not better and any(verdict.step == 0 for verdict in warned):
        return "note", f"Not judged: {lacking}, and there was a warning at the start, see Health; in training {found}"
    return level, sentence if rows else f"Healthy in training: {sentence.removeprefix('Healthy: ')}; {lacking}"


def clearly_better(row: Row, other: Row, *, unknown: bool) -> bool:
    """Whether the interval of a row is apart from another's, on the better side; `unknown` without intervals."""
    if row.low is None or row.high is None or other.low is None or other.high is None:
        return unknown
    return row.high < other.low if row.metric.startswith(LESS_IS_BETTER) else row.low > other.high


def is_headline(row: Row) -> bool:
    """Whether the metric is among the main ones of its protocol; true for unknown protocols."""
    measure = PROTOCOLS.get(row.protocol)
    return measure is None or re.fullmatch(measure.headline, row.metric) is not None


def comparisons(rows: list[Row]) -> list[str]:
    """A sentence for each headline metric: the trained encoder and its baselines, with intervals."""
    sentences = []
    for row in rows:
        if row.encoder != "trained" or not is_headline(row):
            continue
        protocol = PROTOCOLS.get(row.protocol)
        name = (protocol.title if protocol is not None else None) or row.protocol
        samples = counted(row.n, f"{row.split} sample")
        sentence = f"{name} reaches {value_and_interval(row)} {row.metric} on {samples} of {row.data}"
        baselines = [_compared(row, x) for x in rows if x.encoder in _BASELINES and _same_measure(row, x)]
        sentences.append(f"{sentence}: {'; '.join(baselines)}." if baselines else f"{sentence}; without a baseline.")
    return sentences


def _compared(row: Row, other: Row) -> str:
    who, value = _BASELINES[other.encoder], value_and_interval(other)
    if row.low is None or row.high is None or other.low is None or other.high is None:
        return f"{who} has {value}"
    if row.low <= other.high and other.low <= row.high:
        return f"not clearly different from {who} at {value}"
    if (row.value < other.value) != row.metric.startswith(LESS_IS_BETTER):
        return f"worse than {who} at {value}"
    gap, low, high = difference(row, other)
    if decimals(row.metric) is not None:
        amount = f"{gap:.2f} ({low:.2f} to {high:.2f})"
    else:
        amount = f"{100 * gap:.1f} points ({100 * low:.1f} to {100 * high:.1f})"
    if row.value > other.value > 0:
        return f"{row.value / other.value:.1f} times {who} at {value}, {amount} more"
    return f"{amount} {'more' if row.value > other.value else 'less'} than {who} at {value}"


def difference(row: Row, other: Row) -> tuple[float, float, float]:
    """The difference of two values and its interval: each limit is the root of the summed squares of the two arms.

    For two proportions it is Newcombe's. It does not use that both were measured on the same samples, so it is wide.

    Reference: Newcombe 1998, "Interval estimation for the difference between independent proportions", method 10,
    https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8%3C873::AID-SIM779%3E3.0.CO;2-I
    """
    if row.value < other.value:
        row, other = other, row
    assert row.low is not None and row.high is not None and other.low is not None and other.high is not None
    gap = row.value - other.value
    down = math.hypot(row.value - row.low, other.high - other.value)
    up = math.hypot(row.high - row.value, other.value - other.low)
    return gap, gap - down, gap + up


def value_and_interval(row: Row) -> str:
    return f"{shown(row)} {interval(row)}".strip()


def _same_measure(row: Row, other: Row) -> bool:
    measure = row.protocol, row.metric, row.split, row.data
    return measure == (other.protocol, other.metric, other.split, other.data)
