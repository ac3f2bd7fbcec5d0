"""Clients that send half a request, or leave: they get a deadline and a share, and others are answered."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import HTTPException

from nearfar.explore import connections
from nearfar.explore.guard import BodyLimit
from nearfar.explore.limits import Limits
from nearfar.explore.serve import guarded_app
from nearfar.explore.space import ExploredRun
from tests.explore.place import log, serving

HALF = b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BODY = HALF + b"Content-Type: application/octet-stream\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 1000
GET = b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(connections, "WAITING", 40)
    run = ExploredRun("training", log(tmp_path / "run"), None)
    limits = Limits(body_seconds=0.5, bodies=6_000_000)
    with serving(guarded_app([run], "127.0.0.1", limits=limits)) as address:
        yield int(address.rpartition(":")[2])


async def ask(port: int, request: bytes, seconds: float = 20.0) -> bytes:
    """All that the server answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(seconds):
            return await reader.read(1 << 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_half_sent_requests_are_closed_and_others_answered(port: int) -> None:
    async def all_of_them() -> tuple[list[bytes], list[bytes]]:
        slow = [asyncio.ensure_future(ask(port, part)) for part in [b"", HALF] * 40]
        await asyncio.sleep(0.1)
        normal = await asyncio.gather(*(ask(port, GET) for _ in range(20)))
        return normal, await asyncio.gather(*slow)

    normal, slow = asyncio.run(all_of_them())
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in normal)
    assert slow == [b""] * 80  # within `ask`'s 20 s


def test_bodies_have_a_deadline_and_a_limit(port: int) -> None:
    start = time.monotonic()
    assert asyncio.run(ask(port, BODY)).startswith((b"HTTP/1.1 408", b"HTTP/1.1 4"))
    assert time.monotonic() - start < 15
    head = HALF + b"Content-Type: application/json\r\nContent-Length: 17000000\r\n\r\n"
    assert asyncio.run(ask(port, head + b'{"a": 1')).startswith((b"HTTP/1.1 413", b"HTTP/1.1 409"))


def test_one_address_does_not_take_the_room_of_all_bodies() -> None:
    """Unfinished bodies of one client filled the room, and nobody else could search by a picture."""
    limits, sent = Limits(bodies=1000, client_bodies=400), asyncio.Event()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send("answered")

    async def post(client: str, size: int, *, whole: bool) -> str:
        parts = [{"type": "http.request", "body": bytes(size), "more_body": not whole}]

        async def receive() -> Any:
            if not parts:
                await sent.wait()
                return {"type": "http.request", "body": b"", "more_body": False}
            return parts.pop()

        async def send(message: Any) -> None:
            answers.append(message)

        answers: list[str] = []
        scope = {"type": "http", "path": "/api/search", "headers": [], "client": (client, 1)}
        try:
            await limited(scope, receive, send)
        except HTTPException as error:
            return str(error.status_code)
        return answers[0]

    async def all_of_them() -> list[str]:
        greedy = [asyncio.ensure_future(post("10.0.0.1", 150, whole=False)) for _ in range(6)]
        await asyncio.sleep(0)
        normal = await post("10.0.0.2", 300, whole=True)
        sent.set()
        return [normal, *await asyncio.gather(*greedy)]

    limited = BodyLimit(app, limits)
    assert asyncio.run(all_of_them()) == ["answered", "answered", "answered", "503", "503", "503", "503"]
    assert not limited._held


def test_a_client_that_leaves_brings_no_traceback(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    async def leave() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(BODY)
        await writer.drain()
        writer.close()
        await asyncio.sleep(0.3)

    asyncio.run(leave())
    assert asyncio.run(ask(port, GET)).startswith(b"HTTP/1.1 200")
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_reads_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer stayed in memory, and a thousand such clients kept all others out."""
    monkeypatch.setattr(connections, "READ_SECONDS", 0.3)

    async def large(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(50_000_000)})

    async def read(port: int, pause: float) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(GET)
        await asyncio.sleep(pause)
        count = 0
        try:
            while part := await reader.read(1 << 20):
                count += len(part)
        except ConnectionError:
            return -1
        finally:
            writer.close()
        return count

    with serving(large) as address:
        port = int(address.rpartition(":")[2])
        assert asyncio.run(read(port, 3.0)) < 50_000_000
        assert asyncio.run(read(port, 0.0)) >= 50_000_000
