"""What is in a run folder. Anything may be absent or broken; then a sentence says so, and the rest is still told."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from nearfar.evaluate.neighbours import Neighbours
from nearfar.evaluate.results import Results

Content = TypeVar("Content")


@dataclass(frozen=True)
class Verdict:
    """One finding of the health watch."""

    step: int
    level: str  # "good", "note", "warning" or "error"
    text: str


@dataclass(frozen=True)
class Run:
    """The contents of a run folder, as far as they could be read."""

    name: str
    config_text: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # in the order of their steps
    verdicts: list[Verdict] = field(default_factory=list)
    results: Results | None = None
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

    return Run(
        name=folder.resolve().name,
        config_text=part("config.yaml", _text, ""),
        config=part("config.yaml", _config, {}),
        metrics=part("metrics.jsonl", _metrics, []),
        verdicts=part("verdicts.json", _verdicts, []),
        results=part("evaluation.json", Results.load, None),
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


def _png(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError("expected a PNG")
    return content
