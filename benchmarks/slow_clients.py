"""`nearfar explore` with slow clients: how long normal ones wait, and what memory the server takes.

A third of the slow clients send half a header, a third half a body, a third ask for the map and never read it; each
comes back when it is thrown out. A normal client asks for neighbors or searches with a picture, then pauses.

    python benchmarks/slow_clients.py [--slow 500] [--clients 200] [--pause 4] [--seconds 30] [--rows 100000]
"""

import argparse
import asyncio
import os
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import httpx2
import numpy as np

from machine import describe
from serve import make_place, query, serving

HEAD = b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\n"
KINDS = (
    HEAD,
    HEAD + b"Content-Type: image/jpeg\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 100_000,
    b"GET /api/map HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
)


async def slow(port: int, number: int, until: float, closed: list[int]) -> None:
    while time.perf_counter() < until:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(KINDS[number % 3])
            while time.perf_counter() < until and not writer.transport.is_closing():
                await asyncio.sleep(0.5)
                if number % 3 != 2 and reader.at_eof():
                    break
            writer.close()
        except OSError:
            await asyncio.sleep(0.2)
        closed[number % 3] += 1


async def normal(
    ask: httpx2.AsyncClient, number: int, rows: int, pause: float, until: float, seen: list[float], wrong: list[str]
) -> None:
    draw, picture = random.Random(number), query(number)
    await asyncio.sleep(draw.uniform(0, pause))
    while time.perf_counter() < until:
        start = time.perf_counter()
        try:
            if draw.random() < 0.5:
                answer = await ask.get("/api/neighbours", params={"row": draw.randrange(rows)})
            else:
                answer = await ask.post("/api/search", content=picture, headers={"Content-Type": "image/jpeg"})
            if answer.status_code != 200:
                wrong.append(f"{answer.status_code} {answer.text[:80]}")
        except httpx2.HTTPError as error:
            wrong.append(repr(error)[:120])
        seen.append(time.perf_counter() - start)
        await asyncio.sleep(draw.uniform(0.5, 1.5) * pause)


async def load(address: str, options: argparse.Namespace, seen: list[float], wrong: list[str]) -> list[int]:
    port, closed = urlsplit(address).port or 0, [0, 0, 0]
    until = time.perf_counter() + options.seconds
    most = httpx2.Limits(max_connections=options.clients, max_keepalive_connections=options.clients)
    async with httpx2.AsyncClient(base_url=address, timeout=60, limits=most) as ask:
        held = [asyncio.ensure_future(slow(port, number, until, closed)) for number in range(options.slow)]
        await asyncio.sleep(2)
        each = (normal(ask, n, options.rows, options.pause, until, seen, wrong) for n in range(options.clients))
        await asyncio.gather(*each, *held)
    return closed


def peak_of_children() -> dict[str, int]:
    """Memory of the server in MB, now and at most."""
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    lines = Path(f"/proc/{own[0]}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) // 1024 for line in lines if line.startswith(("VmHWM", "VmRSS"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--slow", type=int, default=500)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--pause", type=float, default=4)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    seen: list[float] = []
    wrong: list[str] = []
    with TemporaryDirectory() as folder:
        run, file = make_place(Path(folder), options.rows)
        with serving(run, file) as address:
            before = peak_of_children()["VmRSS"]
            closed = asyncio.run(load(address, options, seen, wrong))
            peak = peak_of_children()["VmHWM"]
    p50, p95, p99 = np.percentile(seen, [50, 95, 99])
    print(f"{describe()}; load of the machine {os.getloadavg()[0]:.1f}")
    print(f"{options.slow} slow clients (closed {closed}), {options.clients} normal ones that pause {options.pause} s:")
    print(f"{len(seen)} requests, p50 {p50:.2f} s, p95 {p95:.2f} s, p99 {p99:.2f} s, {len(wrong)} not answered")
    print(f"memory of the server: {before} MB before, {peak} MB at most")
    for line in wrong[:5]:
        print(f"- {line}")


if __name__ == "__main__":
    main()
