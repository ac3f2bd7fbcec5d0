"""Work of many requests on few threads, with an end to how much may wait."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class BusyError(RuntimeError):
    """So much waits already that more is refused."""

    def __init__(self) -> None:
        super().__init__("too many requests are waiting; try again in a second")


class Lane:
    """A few threads, and at most so many calls in them or before them.

    >>> lane = Lane(workers=1, waiting=2)
    >>> lane.submit(lambda: 6 * 7).result()
    42
    """

    def __init__(self, *, workers: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="explore")
        self._places = threading.BoundedSemaphore(waiting)

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """Raises `BusyError` where all places are taken."""
        if not self._places.acquire(blocking=False):
            raise BusyError
        future = self._pool.submit(work)
        future.add_done_callback(lambda _: self._places.release())
        return future

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class Batcher(Generic[Job, Result]):
    """One thread that takes what waits, up to a batch at a time, and answers all of it together.

    Args:
        work: jobs to as many results; a result that is an exception is raised to who asked.
        batch: jobs taken at a time.
        waiting: jobs that may wait.

    >>> doubled = Batcher(lambda jobs: [2 * job for job in jobs], batch=4, waiting=8)
    >>> doubled.submit(21).result()
    42
    """

    def __init__(self, work: Callable[[list[Job]], Sequence[Result | Exception]], *, batch: int, waiting: int) -> None:
        self._work, self._batch = work, batch
        self._waiting: queue.Queue[tuple[Job, Future[Result]] | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._run, name="explore-batches", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> "Future[Result]":
        """Raises `BusyError` where too many wait."""
        future: Future[Result] = Future()
        try:
            self._waiting.put_nowait((job, future))
        except queue.Full:
            raise BusyError from None
        return future

    def close(self) -> None:
        """End the thread after what it is doing."""
        while True:
            try:
                self._waiting.put_nowait(None)
                return
            except queue.Full:
                try:
                    left = self._waiting.get_nowait()
                except queue.Empty:
                    continue
                if left is not None:
                    left[1].cancel()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            taken, last = [first], False
            while len(taken) < self._batch and not last:
                try:
                    more = self._waiting.get_nowait()
                except queue.Empty:
                    break
                last = more is None
                if more is not None:
                    taken.append(more)
            self._answer([each for each in taken if each[1].set_running_or_notify_cancel()])
            if last:
                return

    def _answer(self, taken: list[tuple[Job, "Future[Result]"]]) -> None:
        if not taken:
            return
        try:
            results: Sequence[Result | Exception] = self._work([job for job, _ in taken])
        except Exception as error:  # told to all of them: the thread lives on
            results = [error] * len(taken)
        for (_, future), result in zip(taken, results, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
