"""What is in a run folder. Anything may be absent or broken; then a sentence says so, and the rest is still told."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray

from nearfar.evaluate.neighbours import Neighbours
from nearfar.evaluate.results import Results, Row, curve_name
from nearfar.report.figures import FIGURES

Content = TypeVar("Content")


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


@dataclass(frozen=True)
class Run:
    """The contents of a run folder, as far as they could be read."""

    name: str
    config_text: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # in the order of their steps
    verdicts: list[Verdict] = field(default_factory=list)
    results: Results | None = None
    figures: list[Figure] = field(default_factory=list)
    views: bytes | None = None  # a PNG
    neighbours: Neighbours | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

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
    """Read `config.yaml`, `metrics.jsonl`, `verdicts.json`, `evaluation.json`, `views.png`, `neighbours.npz` and
    `environment.json` of a run folder.
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
    figures = [
        Figure(row, part(f"{FIGURES}/{name}.png", _png, None), part(f"{FIGURES}/{name}.npz", _classes, {}))
        for name, row in reversed(first.items())
    ]
    return Run(
        name=folder.resolve().name,
        config_text=part("config.yaml", _text, ""),
        config=part("config.yaml", _config, {}),
        metrics=part("metrics.jsonl", _metrics, []),
        verdicts=part("verdicts.json", _verdicts, []),
        results=results,
        figures=[figure for figure in figures if figure.picture or figure.classes],
        views=part("views.png", _png, None),
        neighbours=part("neighbours.npz", Neighbours.load, None),
        environment=part("environment.json", _object, {}),
        problems=problems,
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


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
        if isinstance(content, dict) and isinstance(content.get("step"), int | float):
            lines.append(content)
    return sorted(lines, key=lambda content: float(content["step"]))


def _verdicts(path: Path) -> list[Verdict]:
    return [Verdict(int(v["step"]), str(v["level"]), str(v["text"])) for v in json.loads(_text(path))]


def _object(path: Path) -> dict[str, Any]:
    content = json.loads(_text(path))
    if not isinstance(content, dict):
        raise ValueError("expected an object")
    return content


def _classes(path: Path) -> dict[str, NDArray[Any]]:
    names = ("classes", "support", "precision", "recall", "f1")
    with np.load(path, allow_pickle=False) as arrays:
        if not set(names) <= set(arrays.files):
            return {}
        found = {name: arrays[name] for name in names}
    if len({array.shape for array in found.values()}) != 1 or found["classes"].ndim != 1:
        raise ValueError("expected a value for each class")
    return found


def _png(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError("expected a PNG")
    return content
