"""Connections that send nothing, or half a request, have a deadline and a limited number of places."""

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0  # from the first byte of a connection, or from the last answer, to the end of the headers
WAITING = 500  # connections without a whole request; of more, the oldest is closed


class DeadlineProtocol(H11Protocol):
    """uvicorn's protocol, whose only deadline is that of idle connections after an answer."""

    _waiting: ClassVar["OrderedDict[int, DeadlineProtocol]"] = OrderedDict()
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

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
