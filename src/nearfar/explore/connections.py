"""Connections that send nothing, or half a request, or do not read, have a deadline and a limited number of places."""

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0  # from the first byte of a connection, or from the last answer, to the end of the headers
READ_SECONDS, LEAST_READ = 10.0, 16 << 10  # bytes of an answer that a client takes in so many seconds, at least
WAITING = 500  # connections without a whole request; of more, the oldest is closed


class DeadlineProtocol(H11Protocol):
    """uvicorn's protocol, whose only deadline is that of idle connections after an answer."""

    _waiting: ClassVar["OrderedDict[int, DeadlineProtocol]"] = OrderedDict()
    _deadline: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._reader is not None:
            self._reader.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        super().resume_writing()

    def _watch_reader(self, before: float = float("inf")) -> None:
        """Close a connection whose client takes almost nothing of its answer: it holds that, and a place."""
        left = self.transport.get_write_buffer_size()
        if left > before - LEAST_READ:
            self.transport.abort()  # also where it is closing, which waits for the client to read the rest
        else:
            self._reader = self.loop.call_later(READ_SECONDS, self._watch_reader, left)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait()

    def _wait(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._close)
        self._waiting[id(self)] = self
        while len(self._waiting) > WAITING:
            next(iter(self._waiting.values()))._close()

    def _stop_waiting(self) -> None:
        self._waiting.pop(id(self), None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.abort()
