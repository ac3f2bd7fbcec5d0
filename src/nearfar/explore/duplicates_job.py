"""The search for duplicates in a run, on a thread of its own."""

import threading
from dataclasses import dataclass, field

from nearfar.explore.batching import BusyError
from nearfar.explore.space import Space
from nearfar.messages import one_line
from nearfar.search.duplicates import Duplicates, find_duplicates


@dataclass
class DuplicatesJob:
    """How far a search for duplicates has come."""

    state: str = "none"  # "none", "running", "done" or "failed"
    done: int = 0  # rows compared
    threshold: float | None = None
    found: Duplicates | None = None
    detail: str | None = None  # why it failed
    groups: list[list[int]] = field(default_factory=list)


class DuplicatesJobs:
    """The job of each run; one runs at a time, since it compares every sample with every other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = False
        self._jobs: dict[int, DuplicatesJob] = {}  # by run

    def of(self, run: int) -> DuplicatesJob:
        return self._jobs.get(run, DuplicatesJob())

    def start(self, run: int, space: Space, threshold: float | None) -> DuplicatesJob:
        """Start a job, unless the same one runs or is done; `BusyError` where another runs."""
        with self._lock:
            before = self.of(run)
            if before.state in ("running", "done") and before.threshold == threshold:
                return before
            if self._running:
                raise BusyError
            self._running = True
            job = self._jobs[run] = DuplicatesJob("running", threshold=threshold)
        threading.Thread(target=self._run, args=(job, space), name="explore-duplicates", daemon=True).start()
        return job

    def _run(self, job: DuplicatesJob, space: Space) -> None:
        def advance(count: int) -> None:
            job.done += count

        try:
            job.found = find_duplicates(space.vectors, threshold=job.threshold, half=space.file.half, advance=advance)
            job.groups = job.found.members()
            job.state = "done"
        except Exception as error:
            job.detail, job.state = one_line(error), "failed"
        finally:
            with self._lock:
                self._running = False
