"""Better, same or WORSE: the trained encoder beside its start and the best cheap baseline, on the same samples."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nearfar.evaluation.protocols import PROTOCOLS
from nearfar.evaluation.results import BY, Comparison, Results, Row
from nearfar.report.difference import difference

Word = Literal["WORSE", "same", "better"]  # the worst first
ALPHA = 0.05  # a difference counts from this p on
_ROLES = {
    "untrained": "start",
    "random": "baseline",
    "raw": "baseline",
    "prepared": "baseline",
}  # where no comparison states them


@dataclass(frozen=True)
class Beside:
    """The trained encoder beside one other, by one metric."""

    row: Row  # of the trained encoder
    name: str  # of the other
    role: str  # "start", "baseline" or "encoder"
    difference: float  # trained minus other
    low: float | None
    high: float | None
    p: float | None  # None: the two were not measured on the same samples, or that is not known

    @property
    def gain(self) -> float:
        """The difference, positive if the trained encoder is better."""
        return -self.difference if self.row.style.less_is_better else self.difference

    @property
    def word(self) -> Word:
        """What the difference says."""
        if self.p is not None:
            certain = self.p < ALPHA
        else:
            certain = self.low is None or self.high is None or not self.low <= 0 <= self.high
        if not certain or self.gain == 0:
            return "same"
        return "better" if self.gain > 0 else "WORSE"

    @property
    def amount(self) -> str:
        """The difference with its interval: points of shares, else as the metric is written."""
        places, scale = self.row.style.decimals, 1
        if places is None:
            places, scale = 1, 100
        text = f"{scale * self.difference:+.{places}f}"
        if self.low is None or self.high is None:
            return text
        return f"{text} ({scale * self.low:+.{places}f} to {scale * self.high:+.{places}f})"


@dataclass(frozen=True)
class Judgement:
    """The verdict of an evaluation.

    Attributes:
        word: better: than the start and than the best baseline; WORSE: than one of them; else same.
        start, baseline: the same for each of the two; None: it was not measured.
        line: both in words, for the first line.
    """

    word: Word
    start: Word | None
    baseline: Word | None
    line: str

    @property
    def level(self) -> Literal["good", "warning", "error"]:
        """Its color: never good if the encoder is no better than its start."""
        if self.word == "better":
            return "good"
        return "error" if self.start == "WORSE" else "warning"


def judge(results: Results | None) -> Judgement | None:
    """The verdict from the headline metrics; None if neither start nor baseline was measured beside them.

    By each metric the best baseline is the one that the encoder is least ahead of. It counts as WORSE than its start,
    or than the baselines, if one metric says so; as better, if one says so and it is behind by none.
    """
    beside = [] if results is None else main_differences(results)
    start = [each for each in beside if each.role == "start"]
    best = best_baselines(beside)
    if not start and not best:
        return None
    words = {what: summed(found) for what, found in (("start", start), ("best", best)) if found}
    said: dict[Word, list[str]] = {}
    if start:
        said.setdefault(words["start"], []).append("its start" + _where(start, words["start"]))
    if best:
        of = [each for each in best if each.word == words["best"]] or best
        names = ", ".join(dict.fromkeys(called(each.name) for each in of))
        said.setdefault(words["best"], []).append(f"the best baseline{_where(best, words['best'])} ({names})")
    order: tuple[Word, ...] = ("WORSE", "same", "better")
    clauses = []
    for word in order:
        if word in said:
            link = "as" if word == "same" else "than"
            clauses.append(f"{word} {link} {f' and {link} '.join(said[word])}")
    whole = "WORSE" if "WORSE" in words.values() else "better" if set(words.values()) == {"better"} else "same"
    line = "; ".join(clauses)
    return Judgement(whole, words.get("start"), words.get("best"), line[0].upper() + line[1:])  # type: ignore[arg-type]


def called(name: str) -> str:
    """A baseline in the reader's words.

    >>> called("prepared"), called("MFCC")
    ('network input', 'MFCC')
    """
    return {"raw": "raw input", "prepared": "network input", "random": "random network"}.get(name, name)


def _where(found: Sequence[Beside], word: Word) -> str:
    """The metrics that say so, if not all do."""
    agreeing = [each for each in found if each.word == word]
    if len(agreeing) == len(found) or word != "WORSE":
        return ""
    several = len({(each.row.data, each.row.split) for each in found}) > 1
    names = (title(each.row) + (f" on {each.row.data} {each.row.split}" if several else "") for each in agreeing)
    return f" by {', '.join(dict.fromkeys(names))}"


def title(row: Row) -> str:
    """The protocol of a row as a name."""
    return {"knn": "k-NN", "linear": "linear probe"}.get(row.protocol, row.protocol)


def summed(metrics: Sequence[Beside]) -> Word:
    """One word for several metrics: WORSE if one is, else better if one is and no difference is against it."""
    words = {each.word for each in metrics}
    if "WORSE" in words:
        return "WORSE"
    return "better" if "better" in words and all(each.gain >= 0 for each in metrics) else "same"


def best_baselines(beside: Sequence[Beside]) -> list[Beside]:
    """Of each metric the baseline that the encoder is least ahead of."""
    found: dict[Row, Beside] = {}
    for each in beside:
        if each.role == "baseline" and (each.row not in found or each.gain < found[each.row].gain):
            found[each.row] = each
    return list(found.values())


def main_differences(results: Results) -> list[Beside]:
    """The encoder in question beside start and baselines, by the metrics that decide."""
    who = subject(results)
    rows = [row for row in results.rows if row.encoder == who and is_headline(row) and _verdict(row) != "never"]
    deciding = [row for row in rows if _verdict(row) == "first"] or rows
    return [each for row in deciding for each in differences(row, results) if each.role in ("start", "baseline")]


def _verdict(row: Row) -> str:
    """When the row's protocol decides; of one from outside after the others."""
    known = PROTOCOLS.get(row.protocol)
    return "second" if known is None else known.verdict


def subject(results: Results) -> str | None:
    """The encoder in question: "trained" of a run, else the first that was measured."""
    names = [row.encoder for row in results.rows]
    return "trained" if "trained" in names else next(iter(names), None)


def differences(row: Row, results: Results) -> list[Beside]:
    """A row beside all others of its metric: paired where that was compared, else by the intervals of both."""
    paired = {each.baseline: each for each in results.comparisons if _is_of(each, row)}
    found = [
        Beside(row, name, each.role, each.difference, each.low, each.high, each.p) for name, each in paired.items()
    ]
    for other in results.rows:
        if other.encoder not in (row.encoder, *paired) and same_measure(row, other):
            low, high = None, None
            if None not in (row.low, row.high, other.low, other.high):
                _, low, high = difference(row, other)
                low, high = (low, high) if row.value >= other.value else (-high, -low)
            role = _ROLES.get(other.encoder, "encoder")
            found.append(Beside(row, other.encoder, role, row.value - other.value, low, high, None))
    order = {other.encoder: place for place, other in enumerate(results.rows)}
    return sorted(found, key=lambda each: order.get(each.name.partition(BY)[0], len(order)))


def _is_of(comparison: Comparison, row: Row) -> bool:
    own = row.encoder, row.protocol, row.metric, row.split, row.data
    return own == tuple(getattr(comparison, name) for name in ("encoder", "protocol", "metric", "split", "data"))


def same_measure(row: Row, other: Row) -> bool:
    """Whether two rows are numbers of the same kind."""
    measure = row.protocol, row.metric, row.split, row.data
    return measure == (other.protocol, other.metric, other.split, other.data)


def is_headline(row: Row) -> bool:
    """Whether the metric is among the main ones of its protocol; true for unknown protocols."""
    measure = PROTOCOLS.get(row.protocol)
    return measure is None or re.fullmatch(measure.headline, row.metric) is not None
