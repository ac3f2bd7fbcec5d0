"""A run in training: new lines of its log as server-sent events."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from nearfar.data.cache import is_locked
from nearfar.model.stopped import has_model
from nearfar.report.run import read_metrics_line, read_verdicts

State = Literal["training", "stopped", "finished"]
BLOCK = 1 << 20  # bytes of the log read at a time
INTERVAL = 1.0  # seconds between reads
KEEP_ALIVE = 15  # reads without news before a comment keeps the connection open


def state_of(folder: Path) -> State:
    """Of a run: "finished" where it has its encoder, "training" where a process holds it, else "stopped"."""
    if has_model(folder):
        return "finished"
    return "training" if is_locked(folder) else "stopped"


class LogReader:
    """Reads what is new in `metrics.jsonl` and `verdicts.json`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offset, self._rest = 0, b""
        self._verdicts: Any = None
        self._state: State | None = None

    def news(self) -> list[tuple[str, Any]]:
        """Events by name: "reset" where the log was truncated, "metrics" in order, "verdicts", "state"."""
        found: list[tuple[str, Any]] = []
        log = self.folder / "metrics.jsonl"
        try:
            if log.stat().st_size < self._offset:  # a resumed run removes what came after its checkpoint
                self._offset, self._rest = 0, b""
                found.append(("reset", {}))
            with log.open("rb") as file:
                file.seek(self._offset)
                while block := file.read(BLOCK):
                    self._offset += len(block)
                    *lines, self._rest = (self._rest + block).split(b"\n")
                    found += [("metrics", line) for line in map(scalars, lines) if line is not None]
        except OSError:
            pass  # no log yet
        verdicts = self._read_verdicts()
        if verdicts is not None and verdicts != self._verdicts:
            self._verdicts = verdicts
            found.append(("verdicts", verdicts))
        state = state_of(self.folder)
        if state != self._state:
            self._state = state
            found.append(("state", {"state": state}))
        return found

    def _read_verdicts(self) -> list[dict[str, Any]] | None:
        try:
            return [asdict(verdict) for verdict in read_verdicts(self.folder / "verdicts.json")]
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None  # no verdicts yet, or half written


def scalars(line: bytes) -> dict[str, float] | None:
    """The finite numbers in a line of the log; None where the line is broken.

    >>> scalars(b'{"step": 3, "loss": 0.5, "positives": [1, 2], "knn": null}')
    {'step': 3, 'loss': 0.5}
    >>> scalars(b'{"step": 3, "lo') is None
    True
    """
    content = read_metrics_line(line)
    if content is None:
        return None
    numbers = {k: v for k, v in content.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return {k: v for k, v in numbers.items() if abs(v) < 1e300 and math.isfinite(v)}


async def events(folder: Path, *, follow: bool = True, interval: float = INTERVAL) -> AsyncIterator[str]:
    """Server-sent events of the whole log and, with `follow`, of new lines until the client disconnects."""
    log, quiet = LogReader(folder), 0
    while True:
        news = await asyncio.to_thread(log.news)
        for name, content in news:
            yield f"event: {name}\ndata: {json.dumps(content, allow_nan=False)}\n\n"
        quiet = 0 if news else quiet + 1
        if not follow:
            return
        if quiet >= KEEP_ALIVE:
            quiet = 0
            yield ": still here\n\n"
        await asyncio.sleep(interval)
