"""Work of many requests on few threads, with a bound on how much may wait."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class BusyError(RuntimeError):
    """The queue is full."""

    def __init__(self) -> None:
        super().__init__("too many requests are waiting; try again in a second")


class BoundedPool:
    """A thread pool with a bound on the calls that run or wait.

    >>> pool = BoundedPool(workers=1, waiting=2)
    >>> pool.submit(lambda: 6 * 7).result()
    42
    """

    def __init__(self, *, workers: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="explore")
        self._slots = threading.BoundedSemaphore(waiting)

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """Raises `BusyError` where the bound is reached."""
        if not self._slots.acquire(blocking=False):
            raise BusyError
        future = self._pool.submit(work)
        future.add_done_callback(lambda _: self._slots.release())
        return future

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class Batcher(Generic[Job, Result]):
    """One thread that takes waiting jobs in batches and answers a batch at once.

    Args:
        work: jobs to as many results; a result that is an exception is raised to the caller who sent that job.
        batch: jobs taken at a time, at most.
        waiting: jobs that may wait.

    >>> doubled = Batcher(lambda jobs: [2 * job for job in jobs], batch=4, waiting=8)
    >>> doubled.submit(21).result()
    42
    """

    def __init__(self, work: Callable[[list[Job]], Sequence[Result | Exception]], *, batch: int, waiting: int) -> None:
        self._work, self._batch = work, batch
        self._waiting: queue.Queue[tuple[Job, Future[Result]]] = queue.Queue(waiting)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="explore-batches")

    def submit(self, job: Job) -> "Future[Result]":
        """Raises `BusyError` where too many wait."""
        future: Future[Result] = Future()
        try:
            self._waiting.put_nowait((job, future))
        except queue.Full:
            raise BusyError from None
        self._thread.submit(self._answer)
        return future

    def close(self) -> None:
        """Cancel what waits, and end the thread after its batch."""
        for _, future in self._take(self._waiting.maxsize):
            future.cancel()
        self._thread.shutdown(wait=False)

    def _take(self, most: int) -> list[tuple[Job, "Future[Result]"]]:
        taken: list[tuple[Job, Future[Result]]] = []
        with suppress(queue.Empty):
            while len(taken) < most:
                taken.append(self._waiting.get_nowait())
        return taken

    def _answer(self) -> None:
        """Answer the next batch: there is none where an earlier call took this one's job into its batch."""
        taken = [each for each in self._take(self._batch) if each[1].set_running_or_notify_cancel()]
        if not taken:
            return
        try:
            results: Sequence[Result | Exception] = self._work([job for job, _ in taken])
        except Exception as error:  # raised to all callers; the thread goes on
            results = [error] * len(taken)
        for (_, future), result in zip(taken, results, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
