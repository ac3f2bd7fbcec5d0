"""The verdict: what was trained, whether it is healthy, and how much better it is, in sentences."""

import math
import re

from nearfar.evaluate.protocols import PROTOCOLS
from nearfar.evaluate.results import Row, interval, shown
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
        words += f" (epoch {epoch:g})"
    losses = [line["loss"] for line in run.metrics if isinstance(line.get("loss"), int | float)]
    if losses:
        words += f"; the loss went from {losses[0]:.3g} to {losses[-1]:.3g}"
    return f"{words}."


def health(verdicts: list[Verdict]) -> tuple[str, str]:
    """A level ("good", "note", "warning" or "error") and a sentence; a warning stands until all is well again."""
    errors = [verdict for verdict in verdicts if verdict.level == "error"]
    if errors:
        return "error", f"Not healthy: {errors[-1].text}"
    judged = [verdict for verdict in verdicts if verdict.level in ("good", "warning")]
    if not judged:
        return "note", "No health verdict was recorded."
    last = judged[-1]
    if last.level == "warning":
        return "warning", f"Look closer: {last.text}"
    return "good", f"Healthy: {last.text}"


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
    if row.low > other.high:
        times = f"{row.value / other.value:.1f} times" if other.value > 0 else "clearly above"
        return f"{times} {who} at {value}"
    if row.high < other.low:
        return f"worse than {who} at {value}"
    return f"not clearly different from {who} at {value}"


def _interval(row: Row) -> str:
    return f"{shown(row)} {interval(row)}".strip()


def _same_measure(row: Row, other: Row) -> bool:
    measure = row.protocol, row.metric, row.split, row.data
    return measure == (other.protocol, other.metric, other.split, other.data)
