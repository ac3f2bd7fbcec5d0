"""The verdict: what was trained, whether it is healthy, and how much better it is, in sentences."""

import math
import re
from typing import Any

from nearfar.evaluate.protocols import PROTOCOLS
from nearfar.evaluate.results import PLAIN, Row, interval, percent, shown
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
    last = run.metrics[-1]
    words += f" for {last['step']:,.0f} steps"
    if isinstance(epoch := last.get("epoch"), int | float) and math.isfinite(epoch):
        planned = run.config.get("epochs")
        ended = not isinstance(planned, int | float) or isinstance(planned, bool) or epoch >= planned
        words += f" (epoch {epoch:g})" if ended else f" (epoch {epoch:.3g} of {planned:g}: it is not finished)"
    if losses := _numbers(run.metrics, "loss"):
        words += f"; the loss went from {losses[0]:.3g} to {losses[-1]:.3g}"
    if found := _numbers(run.metrics, "knn"):
        words += f", and k-NN on held-out samples from {percent(found[0])} to {percent(found[-1])}"
    return f"{words}."


def _numbers(metrics: list[dict[str, Any]], name: str) -> list[float]:
    values = (line.get(name) for line in metrics)
    return [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]


def health(verdicts: list[Verdict], metrics: list[dict[str, Any]] | None = None) -> tuple[str, str]:
    """A level ("good", "note", "warning" or "error") and a sentence; a warning stands until all is well again.

    Args:
        metrics: of a run that was watched: where nothing was found wrong with it, that is a finding.
    """
    errors = [verdict for verdict in verdicts if verdict.level == "error"]
    if errors:
        return "error", f"Not healthy: {errors[-1].text}"
    judged = [verdict for verdict in verdicts if verdict.level in ("good", "warning")]
    if not judged and (ranks := _numbers(metrics or [], "effective_rank")):
        return "good", f"Healthy: nothing was found wrong; the effective rank is {ranks[-1]:.3g} at the last look"
    if not judged:
        return "note", "No health verdict was recorded."
    last = judged[-1]
    if last.level == "warning":
        return "warning", f"Look closer: {last.text}"
    return "good", f"Healthy: {last.text}"


def overall(run: Run) -> tuple[str, str]:
    """The health of a run in the light of its evaluation: what is no better than untrained is not well."""
    level, sentence = health(run.verdicts, run.metrics)
    warned = sum(verdict.level == "warning" for verdict in run.verdicts)
    rows = list(run.results.rows) if run.results is not None else []
    beaten = [
        _clearly_better(row, other)
        for row in rows
        for other in rows
        if row.encoder == "trained" and other.encoder == "untrained" and is_headline(row) and _same_measure(row, other)
    ]
    if level == "good" and beaten and not any(beaten):
        words = sentence.removeprefix("Healthy: ").rstrip(".")
        return "warning", f"Look closer: {words}; but it is not clearly better than the untrained encoder"
    if level == "good" and warned:
        sentence += f"; {'a warning' if warned == 1 else f'{warned} warnings'} on the way there, under Health"
    return level, sentence


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
        sentence = f"{name} reaches {_interval(row)} {row.metric} on {row.n:,} {row.split} samples of {row.data}"
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
