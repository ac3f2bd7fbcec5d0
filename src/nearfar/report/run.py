"""What is in a run folder. Anything may be absent or broken; then a sentence says so, and the rest is still told."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray

from nearfar.evaluation.neighbors import Neighbours
from nearfar.evaluation.results import Results, Row, curve_name
from nearfar.report.figures import FIGURES
from nearfar.report.samples import SAMPLES, Samples

Content = TypeVar("Content")
CLASSES = ("classes", "support", "precision", "recall", "f1")  # arrays with a value for each class
DRAWN = ("grid", "roc", "pr", "present", "confusion", "bin_confidence", "bin_accuracy", "bin_count")  # as charts


@dataclass(frozen=True)
class Verdict:
    """One finding of the health watch."""

    step: int
    level: str  # "good", "note", "warning" or "error"
    text: str


@dataclass(frozen=True)
class Figure:
    """What is behind the rows of one encoder, protocol and data set."""

    row: Row  # the first of them
    picture: bytes | None  # a PNG
    classes: dict[str, NDArray[Any]]  # names, support, precision, recall and f1 of each class, or nothing
    curves: dict[str, NDArray[Any]] = field(default_factory=dict)  # what charts are drawn from, as `evaluate` names it


@dataclass(frozen=True)
class Run:
    """The contents of a run folder, as far as they could be read."""

    name: str
    folder: Path | None = None  # as it was given
    saved: int = 0  # the step of the newest checkpoint
    config_text: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # in the order of their steps
    verdicts: list[Verdict] = field(default_factory=list)
    results: Results | None = None
    figures: list[Figure] = field(default_factory=list)
    views: bytes | None = None  # a PNG
    captions: list[str] = field(default_factory=list)  # what the rows of that are given as their other view
    neighbours: Neighbours | None = None  # of a run that has no samples
    samples: Samples | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        """The last step that is known of: not each is logged, and the last of a run that was stopped is saved."""
        logged = self.metrics[-1]["step"] if self.metrics else 0
        return int(max(logged, self.saved, *(verdict.step for verdict in self.verdicts)))

    @property
    def epoch(self) -> float | None:
        """Epochs that were done; None where that is not known."""
        for line in reversed(self.metrics):
            epoch = line.get("epoch")
            if isinstance(epoch, int | float) and math.isfinite(epoch) and line["step"] > 0:
                return float(epoch) * self.done / float(line["step"])
        return None

    @property
    def finished(self) -> bool | None:
        """Whether the run came to its end; None where that is not known."""
        epoch, planned = self.epoch, self.config.get("epochs")
        if epoch is None or not isinstance(planned, int | float) or isinstance(planned, bool):
            return None
        return epoch >= planned * (1 - 1e-9)

    def setting(self, name: str) -> str | None:
        """A setting in words: at the top of the configuration, or one level down; of a group, what it is named."""
        groups = [self.config, *(group for group in self.config.values() if isinstance(group, dict))]
        for group in groups:
            value = group.get(name)
            if isinstance(value, dict):
                value = next((value[key] for key in ("name", "source", "path") if value.get(key)), None)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return str(value)
        return None


def read_run(folder: Path) -> Run:
    """Read `config.yaml`, `metrics.jsonl`, `verdicts.json`, `evaluation.json`, `views.png` and `views.txt`,
    `report/samples.npz`, `neighbours.npz` and `environment.json` of a run folder.
    """
    problems: list[str] = []

    def part(name: str, read: Callable[[Path], Content], absent: Content) -> Content:
        path = folder / name
        if not path.exists():
            return absent
        try:
            return read(path)
        except Exception as error:  # whatever is wrong with one file, the others are still worth reading
            problems.append(f"{name} could not be read ({type(error).__name__}).")
            return absent

    results = part("evaluation.json", Results.load, None)
    first = {curve_name(row): row for row in reversed(results.rows if results else [])}
    figures = []
    for name, row in reversed(first.items()):
        arrays: dict[str, NDArray[Any]] = part(f"{FIGURES}/{name}.npz", _arrays, {})
        classes = {key: arrays[key] for key in CLASSES} if arrays.keys() >= set(CLASSES) else {}
        figures.append(Figure(row, part(f"{FIGURES}/{name}.png", _png, None), classes, arrays))
    return Run(
        name=folder.resolve().name,
        folder=folder,
        saved=part("checkpoints", _newest, 0),
        config_text=part("config.yaml", _text, ""),
        config=part("config.yaml", _config, {}),
        metrics=part("metrics.jsonl", _metrics, []),
        verdicts=part("verdicts.json", _verdicts, []),
        results=results,
        figures=[figure for figure in figures if figure.picture or figure.curves],
        views=part("views.png", _png, None),
        captions=part("views.txt", _lines, []),
        neighbours=part("neighbours.npz", Neighbours.load, None),
        samples=part(SAMPLES, Samples.load, None),
        environment=part("environment.json", _object, {}),
        problems=problems,
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _newest(path: Path) -> int:
    """The step of the newest checkpoint, by its name."""
    return max((int(file.stem.removeprefix("step-")) for file in path.glob("step-*.pt")), default=0)


def _config(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(_text(path))
    if content is not None and not isinstance(content, dict):
        raise ValueError("expected settings by name")
    return content or {}


def _metrics(path: Path) -> list[dict[str, Any]]:
    """Every whole line: a run that was killed may have left half of one."""
    lines = []
    for line in _text(path).splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        step = content.get("step") if isinstance(content, dict) else None
        if isinstance(step, int | float) and math.isfinite(step):
            lines.append(content)
    return sorted(lines, key=lambda content: float(content["step"]))


def _verdicts(path: Path) -> list[Verdict]:
    return [Verdict(int(v["step"]), str(v["level"]), str(v["text"])) for v in json.loads(_text(path))]


def _object(path: Path) -> dict[str, Any]:
    content = json.loads(_text(path))
    if not isinstance(content, dict):
        raise ValueError("expected an object")
    return content


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """What the page draws of the arrays behind a number, as far as it fits together."""
    with np.load(path, allow_pickle=False) as content:
        found = {name: content[name] for name in (*CLASSES, *DRAWN) if name in content.files}
    classes = [found[name] for name in CLASSES if name in found]
    if len(classes) == len(CLASSES) and (len({x.shape for x in classes}) != 1 or classes[0].ndim != 1):
        raise ValueError("expected a value for each class")
    confusion = found.get("confusion")
    if confusion is not None and (confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1]):
        raise ValueError("expected as many rows as columns")
    for name in ("roc", "pr"):
        if name in found and found[name].shape != (len(found[name]), len(found.get("grid", ()))):
            raise ValueError("expected a value at each place of the grid")
    return found


def _png(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError("expected a PNG")
    return content
