"""Duplicates of a run, looked for in a thread of its own while the page goes on."""

import threading
from dataclasses import dataclass, field

from nearfar.explore.batching import BusyError
from nearfar.explore.space import Space
from nearfar.search.duplicates import Duplicates, find_duplicates


@dataclass
class Hunt:
    """How far a search for duplicates has come."""

    state: str = "none"
    done: int = 0
    threshold: float | None = None
    found: Duplicates | None = None
    detail: str | None = None
    members: list[list[int]] = field(default_factory=list)


class Hunts:
    """At most one search for duplicates at a time: each compares every sample with every other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = False
        self._hunts: dict[int, Hunt] = {}  # by run

    def of(self, run: int) -> Hunt:
        return self._hunts.get(run, Hunt())

    def start(self, run: int, space: Space, threshold: float | None) -> Hunt:
        """Begin, unless the same was found or is being looked for; `BusyError` where another is under way."""
        with self._lock:
            before = self.of(run)
            if before.state in ("running", "done") and before.threshold == threshold:
                return before
            if self._running:
                raise BusyError
            self._running = True
            hunt = self._hunts[run] = Hunt("running", threshold=threshold)
        threading.Thread(target=self._run, args=(hunt, space), name="explore-duplicates", daemon=True).start()
        return hunt

    def _run(self, hunt: Hunt, space: Space) -> None:
        def advance(count: int) -> None:
            hunt.done += count

        try:
            hunt.found = find_duplicates(space.vectors, threshold=hunt.threshold, half=space.file.half, advance=advance)
            hunt.members = hunt.found.members()
            hunt.state = "done"
        except Exception as error:
            hunt.detail, hunt.state = " ".join(str(error).split())[:200], "failed"
        finally:
            with self._lock:
                self._running = False
