"""The contents of a run folder. Any file may be missing or broken: then a sentence says so, and the rest is read."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from nearfar.evaluation.results import Results, Row, curve_name
from nearfar.report.samples import SAMPLES, ReportSamples
from nearfar.safe_read import LOG, opened_npz, read_bytes, read_text
from nearfar.yaml_reader import read_yaml

Content = TypeVar("Content")
FIGURES = "evaluation"  # folder of arrays and pictures, in that of a run or an evaluation
PER_CLASS = ("classes", "support", "precision", "recall", "f1")  # arrays with a value for each class
CHARTED = ("grid", "roc", "pr", "present", "confusion", "bin_confidence", "bin_accuracy", "bin_count")


@dataclass(frozen=True)
class HealthVerdict:
    """One verdict on the health of training."""

    step: int
    level: str  # "good", "note", "warning" or "error"
    text: str


@dataclass(frozen=True)
class ProtocolCurves:
    """The arrays and the picture behind the rows of one encoder, protocol and data set."""

    row: Row  # the first of them
    picture: bytes | None  # a PNG
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)  # by the protocol's names

    @property
    def has_classes(self) -> bool:
        return self.arrays.keys() >= set(PER_CLASS)


@dataclass(frozen=True)
class RunRecord:
    """The contents of a run folder, as far as they could be read."""

    name: str
    folder: Path | None = None  # as it was given
    saved: int = 0  # step of the newest checkpoint
    config_text: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # in the order of their steps
    verdicts: list[HealthVerdict] = field(default_factory=list)
    results: Results | None = None
    figures: list[ProtocolCurves] = field(default_factory=list)
    views: bytes | None = None  # a PNG
    captions: list[str] = field(default_factory=list)  # of the rows of `views`, for image-text pairs
    samples: ReportSamples | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    adaptation: dict[str, Any] = field(default_factory=dict)  # of the card: which weights were kept of those given
    problems: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        """The last known step: logged, saved or judged; not every step is logged."""
        logged = self.metrics[-1]["step"] if self.metrics else 0
        return int(max(logged, self.saved, *(verdict.step for verdict in self.verdicts)))

    @property
    def selection(self) -> str | None:
        """Which weights a run kept that was compared with its start, in a sentence; None: that is not known."""
        line = self.adaptation.get("line")
        return f"{line[0].upper()}{line[1:]}." if isinstance(line, str) and line else None

    @property
    def epoch(self) -> float | None:
        """Finished epochs; None where that is not known."""
        for line in reversed(self.metrics):
            epoch = line.get("epoch")
            if isinstance(epoch, int | float) and math.isfinite(epoch) and line["step"] > 0:
                return float(epoch) * self.done / float(line["step"])
        return None

    @property
    def finished(self) -> bool | None:
        """Whether the run reached its last step; None where that is not known."""
        if isinstance(steps := self.config.get("steps"), int) and self.metrics:
            return self.done >= steps
        epoch, planned = self.epoch, self.config.get("epochs")
        if epoch is None or not isinstance(planned, int | float) or isinstance(planned, bool):
            return None
        return epoch >= planned * (1 - 1e-9)

    def setting(self, name: str) -> str | None:
        """A setting as text, from the top of the configuration or one level down; of a group, its name."""
        groups = [self.config, *(group for group in self.config.values() if isinstance(group, dict))]
        for group in groups:
            value = group.get(name)
            if isinstance(value, dict):
                value = next((value[key] for key in ("name", "source", "path") if value.get(key)), None)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return str(value)
        return None


def read_run(folder: Path) -> RunRecord:
    """Read what the report shows: configuration, metrics, verdicts, results, views, samples and environment."""
    problems: list[str] = []

    def read(name: str, reader: Callable[[Path], Content], default: Content) -> Content:
        path = folder / name
        if not path.exists():
            return default
        try:
            return reader(path)
        except Exception as error:  # whatever is wrong with one file, the others are still worth reading
            problems.append(f"{name} could not be read ({type(error).__name__}).")
            return default

    results = read("evaluation.json", Results.load, None)
    first = {curve_name(row): row for row in reversed(results.rows if results else [])}
    figures = [
        ProtocolCurves(
            row, read(f"{FIGURES}/{name}.png", _read_png, None), read(f"{FIGURES}/{name}.npz", _read_arrays, {})
        )
        for name, row in reversed(first.items())
    ]
    return RunRecord(
        name=folder.resolve().name,
        folder=folder,
        saved=read("checkpoints", _newest_step, 0),
        config_text=read("config.yaml", _read_text, ""),
        config=read("config.yaml", lambda path: dict(read_yaml(path)), {}),
        metrics=read("metrics.jsonl", _read_metrics, []),
        verdicts=read("verdicts.json", read_verdicts, []),
        results=results,
        figures=[figure for figure in figures if figure.picture or figure.arrays],
        views=read("views.png", _read_png, None),
        captions=read("views.txt", lambda path: _read_text(path).splitlines(), []),
        samples=read(SAMPLES, ReportSamples.load, None),
        environment=read("environment.json", lambda path: _mapping(json.loads(_read_text(path))), {}),
        adaptation=read("card.json", lambda path: _mapping(json.loads(_read_text(path)).get("adaptation", {})), {}),
        problems=problems,
    )


def _read_text(path: Path) -> str:
    return read_text(path, LOG, errors="replace")


def _newest_step(path: Path) -> int:
    return max((int(file.stem.removeprefix("step-")) for file in path.glob("step-*.pt")), default=0)


def _mapping(content: object) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError("expected keys and values")
    return content


def _read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every whole line: a run that was killed may leave half a line."""
    lines = [content for line in _read_text(path).splitlines() if (content := read_metrics_line(line)) is not None]
    return sorted(lines, key=lambda content: float(content["step"]))


def read_metrics_line(line: str | bytes) -> dict[str, Any] | None:
    """A line of `metrics.jsonl`; None where it is broken or has no step."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = content.get("step") if isinstance(content, dict) else None
    return content if isinstance(step, int | float) and math.isfinite(step) else None


def read_verdicts(path: Path) -> list[HealthVerdict]:
    """What `verdicts.json` holds; an error where it is broken."""
    return [HealthVerdict(int(v["step"]), str(v["level"]), str(v["text"])) for v in json.loads(_read_text(path))]


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays that the page shows; an error where their shapes disagree."""
    with opened_npz(path) as content:
        found = {name: content[name] for name in (*PER_CLASS, *CHARTED) if name in content}
    classes = [found[name] for name in PER_CLASS if name in found]
    if len(classes) == len(PER_CLASS) and (len({x.shape for x in classes}) != 1 or classes[0].ndim != 1):
        raise ValueError("expected a value for each class")
    confusion = found.get("confusion")
    if confusion is not None and (confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1]):
        raise ValueError("expected as many rows as columns")
    for name in ("roc", "pr"):
        if name in found and found[name].shape != (len(found[name]), len(found.get("grid", ()))):
            raise ValueError("expected a value at each point of the grid")
    return found


def _read_png(path: Path) -> bytes:
    content = read_bytes(path)
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError("expected a PNG")
    return content
