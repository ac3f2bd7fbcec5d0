"""The verdict: what was trained, whether it is healthy, and how much better it is, in sentences."""

import math
import re
from collections.abc import Callable

from nearfar.data.dataset import counted
from nearfar.evaluation.protocols import PROTOCOLS
from nearfar.evaluation.results import PLAIN, Row, interval, percent, shown
from nearfar.report.run import Run, Verdict

PROTOCOL_NAMES = {
    "knn": "k-NN",
    "linear": "A linear probe",
    "sgd": "A linear probe by SGD",
    "finetune": "Fine-tuning",
    "retrieval": "Retrieval",
    "verification": "Verification",
    "clustering": "Clustering",
    "geometry": "The geometry",
    "detection": "A detector",
}
LESS_IS_BETTER = ("word error rate", "character error rate", "median rank", "mean rank", "EER", "calibration error")
_OTHERS = {
    "raw": "raw input",
    "prepared": "pixels as the encoder is given them",
    "untrained": "the untrained encoder",
}


def training(run: Run) -> str:
    """What was trained, on what, and for how long."""
    method = run.setting("method") or "An encoder"
    words = f"{method} was trained"
    if data := run.setting("data"):
        words += f" on {data}"
    if backbone := run.setting("backbone"):
        words += f" with the backbone {backbone}"
    if not run.metrics:
        return f"{words}. No training metrics are in the run folder."
    words += f" for {counted(run.done, 'step')}"
    if (epoch := run.epoch) is not None:
        planned = run.config.get("epochs")
        open_ = run.finished is False
        words += f" (epoch {epoch:.3g} of {planned:g}: it is not finished)" if open_ else f" (epoch {epoch:g})"
    words += _course(run, "loss", "; the loss", lambda value: f"{value:.3g}")
    words += _course(run, "knn", ", and k-NN on held-out samples", percent)
    return f"{words}."


def _course(run: Run, name: str, words: str, text: Callable[[float], str]) -> str:
    """From where to where a measure went; of a single measurement, that it is one."""
    found = [
        (line["step"], float(value))
        for line in run.metrics
        if isinstance(value := line.get(name), int | float) and math.isfinite(value)
    ]
    if not found:
        return ""
    last, value = found[-1]
    when = f" at step {last:,.0f}" if last < run.done or len(found) == 1 else ""
    if len(found) == 1:
        return f"{words} was {text(value)}{when}"
    return f"{words} went from {text(found[0][1])} to {text(value)}{when}"


def health(verdicts: list[Verdict]) -> tuple[str, str]:
    """A level ("good", "note", "warning" or "error") and a sentence; a warning stands until all is well again."""
    errors = [verdict for verdict in verdicts if verdict.level == "error"]
    if errors:
        return "error", f"Not healthy: {errors[-1].text}"
    judged = [verdict for verdict in verdicts if verdict.level in ("good", "warning")]
    if not judged:
        return "note", f"Not judged: {verdicts[-1].text if verdicts else 'no health verdict was recorded'}"
    last = judged[-1]
    if last.level == "warning":
        return "warning", f"Look closer: {last.text}"
    return "good", f"Healthy: {last.text}"


def overall(run: Run) -> tuple[str, str]:
    """The health of a run in the light of its end and its evaluation: only what is known to be well is called healthy.

    What is not finished is not judged, and what is no better than untrained is not well. A warning that the run began
    with, such as of too few steps, stands until an evaluation says otherwise.
    """
    level, sentence = health(run.verdicts)
    if level in ("error", "warning"):
        return level, sentence
    if any(problem.startswith("verdicts.json") for problem in run.problems):
        return "note", "Not judged: what the run said of its health could not be read"
    found = sentence.removeprefix("Healthy: ").rstrip(".")
    warned = [verdict for verdict in run.verdicts if verdict.level == "warning"]
    if warned:
        sentence += f"; {'a warning' if len(warned) == 1 else f'{len(warned)} warnings'} on the way there, under Health"
    if run.finished is False:
        return "note", f"Not finished: {found} so far" if level == "good" else "Not finished, so not judged"
    if level == "note":
        return level, sentence
    measured = list(run.results.rows) if run.results is not None else []
    rows = [row for row in measured if row.protocol != "geometry"]  # a shape, and no task that it is good for
    beaten = [
        _clearly_better(row, other)
        for row in rows
        for other in rows
        if row.encoder == "trained" and other.encoder == "untrained" and is_headline(row) and _same_measure(row, other)
    ]
    if beaten and not any(beaten):
        return "warning", f"Look closer: {found}; but it is not clearly better than the untrained encoder"
    lacking = (
        "no untrained encoder is beside it" if rows else f"it was {'tried on no task' if measured else 'not evaluated'}"
    )
    if not beaten and any(verdict.step == 0 for verdict in warned):
        return "note", f"Not judged: {lacking}, and it began with a warning, under Health; in training {found}"
    return level, sentence if rows else f"Healthy in training: {sentence.removeprefix('Healthy: ')}; {lacking}"


def _clearly_better(row: Row, other: Row) -> bool:
    if row.low is None or row.high is None or other.low is None or other.high is None:
        return True  # nothing is known against it
    return row.high < other.low if row.metric.startswith(LESS_IS_BETTER) else row.low > other.high


def is_headline(row: Row) -> bool:
    """Whether the row is one to read first; of a protocol that is not known here, each is."""
    measure = PROTOCOLS.get(row.protocol)
    return measure is None or re.fullmatch(measure.headline, row.metric) is not None


def comparisons(rows: list[Row]) -> list[str]:
    """For each protocol, the trained encoder beside its baselines, with the intervals."""
    sentences = []
    for row in rows:
        if row.encoder != "trained" or not is_headline(row):
            continue
        name = PROTOCOL_NAMES.get(row.protocol, row.protocol)
        sentence = (
            f"{name} reaches {_interval(row)} {row.metric} on {counted(row.n, f'{row.split} sample')} of {row.data}"
        )
        beside = [_beside(row, other) for other in rows if other.encoder in _OTHERS and _same_measure(row, other)]
        sentences.append(f"{sentence}: {'; '.join(beside)}." if beside else f"{sentence}; there is nothing beside it.")
    return sentences


def _beside(row: Row, other: Row) -> str:
    who, value = _OTHERS[other.encoder], _interval(other)
    if row.low is None or row.high is None or other.low is None or other.high is None:
        return f"{who} has {value}"
    if row.low <= other.high and other.low <= row.high:
        return f"not clearly different from {who} at {value}"
    if (row.value < other.value) != row.metric.startswith(LESS_IS_BETTER):
        return f"worse than {who} at {value}"
    gap, low, high = difference(row, other)
    plain = row.metric.partition(",")[0] in PLAIN
    amount = (
        f"{gap:.2f} ({low:.2f} to {high:.2f})"
        if plain
        else f"{100 * gap:.1f} points ({100 * low:.1f} to {100 * high:.1f})"
    )
    if row.value > other.value > 0:
        return f"{row.value / other.value:.1f} times {who} at {value}, {amount} more"
    return f"{amount} {'more' if row.value > other.value else 'less'} than {who} at {value}"


def difference(row: Row, other: Row) -> tuple[float, float, float]:
    """By how much two values differ, and an interval of that: each limit squares and adds the arms of the two.

    Of two proportions it is Newcombe's. Both were measured on the same samples, which is not used: it is rather wide.

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


def _interval(row: Row) -> str:
    return f"{shown(row)} {interval(row)}".strip()


def _same_measure(row: Row, other: Row) -> bool:
    measure = row.protocol, row.metric, row.split, row.data
    return measure == (other.protocol, other.metric, other.split, other.data)
