"""A run as it trains: the lines of its log as they are written, as server-sent events."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from nearfar.data.cache import is_locked
from nearfar.model.encoder import CARD, MODEL

State = Literal["training", "stopped", "finished"]
PIECE = 1 << 20  # bytes of the log that are read at a time
EVERY = 1.0  # seconds between looks
SILENCE = 15  # looks without news after which a comment keeps the connection open


def state_of(folder: Path) -> State:
    """Of a run: a process is at it, it has its encoder, or neither: it was stopped, ended or killed."""
    if (folder / MODEL).is_file() and (folder / CARD).is_file():
        return "finished"
    return "training" if is_locked(folder) else "stopped"


class Log:
    """What `metrics.jsonl` and `verdicts.json` say that was not told before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._at, self._rest = 0, b""
        self._verdicts: Any = None
        self._state: State | None = None

    def news(self) -> list[tuple[str, Any]]:
        """Events by name: "reset" where the log was begun anew, "metrics" in order, "verdicts", "state"."""
        found: list[tuple[str, Any]] = []
        log = self.folder / "metrics.jsonl"
        try:
            size = log.stat().st_size
            if size < self._at:  # a run that was resumed forgets what came after its checkpoint
                self._at, self._rest = 0, b""
                found.append(("reset", {}))
            with log.open("rb") as file:
                file.seek(self._at)
                while piece := file.read(PIECE):
                    self._at += len(piece)
                    *lines, self._rest = (self._rest + piece).split(b"\n")
                    found += [("metrics", line) for line in map(scalars, lines) if line is not None]
        except OSError:
            pass  # none yet
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
            told = json.loads((self.folder / "verdicts.json").read_bytes())
            return [{"step": int(v["step"]), "level": str(v["level"]), "text": str(v["text"])} for v in told]
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None  # none yet, or being written


def scalars(line: bytes) -> dict[str, float] | None:
    """The plain numbers of a line of the log; None where it is none.

    >>> scalars(b'{"step": 3, "loss": 0.5, "positives": [1, 2], "knn": null}')
    {'step': 3, 'loss': 0.5}
    >>> scalars(b'{"step": 3, "lo') is None
    True
    """
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not isinstance(content.get("step"), int | float):
        return None
    numbers = {k: v for k, v in content.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return {k: v for k, v in numbers.items() if abs(v) < 1e300 and math.isfinite(v)}


async def events(folder: Path, *, follow: bool = True, every: float = EVERY) -> AsyncIterator[str]:
    """Server-sent events of all that was logged and, with `follow`, of what will be, until who listens goes away."""
    log, quiet = Log(folder), 0
    while True:
        news = await asyncio.to_thread(log.news)
        for name, content in news:
            yield f"event: {name}\ndata: {json.dumps(content, allow_nan=False)}\n\n"
        quiet = 0 if news else quiet + 1
        if not follow:
            return
        if quiet >= SILENCE:
            quiet = 0
            yield ": still here\n\n"
        await asyncio.sleep(every)
