"""`nearfar explore` under load: many clients at once on loopback, each asking again as soon as it is answered.

Clients and server are two processes on one machine, so that they take the processor from each other. Half of the
requests are neighbours of a sample, half are searches with an uploaded JPEG, which is decoded, prepared, embedded and
looked up among all vectors.

    python benchmarks/serve.py [--clients 50] [--seconds 20] [--rows 100000] [--out benchmarks/results/serve.md]
"""

import argparse
import asyncio
import io
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import torch
from PIL import Image

from machine import describe
from nearfar.config import TrainConfig
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.card import make_card
from nearfar.model.save import write_model

CLASSES = 26
BACKBONE = "tiny"


def make_place(folder: Path, rows: int) -> tuple[Path, Path]:
    """An encoder, and as many vectors in 26 clouds as an encoder of letters gives, in a file."""
    torch.manual_seed(0)
    network = backbone(BACKBONE)
    run = folder / "run"
    card = make_card(TrainConfig(backbone=BACKBONE), Preparation(32).card())
    write_model(network.state_dict(), card, run)
    rng = np.random.default_rng(0)
    letters = rng.integers(0, CLASSES, rows)
    centres = rng.standard_normal((CLASSES, network.num_features))
    vectors = centres[letters] + 0.6 * rng.standard_normal((rows, network.num_features))
    names = np.array([f"{number}" for number in range(rows)])
    file = folder / "vectors.npz"
    np.savez(
        file, vector=vectors.astype(np.float32), path=names, label=np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))[letters]
    )
    return run, file


@contextmanager
def serving(run: Path, file: Path) -> Iterator[str]:
    """`nearfar explore` in a process of its own, on a free port."""
    words = [sys.executable, "-m", "nearfar", "explore", str(run), "--embeddings", str(file), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            yield next(line for line in lines if line.startswith("explore: ")).removeprefix("explore: ").strip()
        finally:
            process.terminate()


def query(seed: int) -> bytes:
    """A JPEG of 64 pixels, soft noise."""
    coarse = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC).save(file, format="JPEG", quality=90)
    return file.getvalue()


async def client(
    ask: httpx2.AsyncClient, number: int, rows: int, until: float, seen: dict[str, list[float]], wrong: list[str]
) -> None:
    """One request after the other; seconds of each by its kind."""
    draw, picture = random.Random(number), query(number)
    while time.perf_counter() < until:
        kind = draw.choice(["neighbours", "search"])
        start = time.perf_counter()
        try:
            if kind == "neighbours":
                answer = await ask.get("/api/neighbours", params={"row": draw.randrange(rows), "k": 20})
            else:
                headers = {"Content-Type": "image/jpeg"}
                answer = await ask.post("/api/search", params={"k": 20}, content=picture, headers=headers)
            if answer.status_code != 200 or len(answer.json()["results"]) != 20:
                wrong.append(f"{kind}: {answer.status_code} {answer.text[:80]}")
        except httpx2.HTTPError as error:
            wrong.append(f"{kind}: {error!r}"[:120])
        seen[kind].append(time.perf_counter() - start)


async def load(address: str, clients: int, seconds: float, rows: int) -> tuple[dict[str, list[float]], list[str]]:
    seen: dict[str, list[float]] = {"neighbours": [], "search": []}
    wrong: list[str] = []
    limits = httpx2.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx2.AsyncClient(base_url=address, timeout=60, limits=limits) as ask:
        await client(ask, 0, rows, time.perf_counter() + 1, {"neighbours": [], "search": []}, wrong)  # warm
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(ask, number, rows, until, seen, wrong) for number in range(clients)))
    return seen, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "serve.md")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        run, file = make_place(Path(folder), arguments.rows)
        with serving(run, file) as address:
            seen, wrong = asyncio.run(load(address, arguments.clients, arguments.seconds, arguments.rows))
    cores = len(os.sched_getaffinity(0))
    rows = []
    for kind, seconds in {**seen, "all": [s for each in seen.values() for s in each]}.items():
        p50, p95, p99 = np.percentile(seconds, [50, 95, 99]) * 1000
        rate = len(seconds) / arguments.seconds
        rows.append(f"| {kind} | {len(seconds):,} | {rate:,.0f} | {p50:,.0f} | {p95:,.0f} | {p99:,.0f} |")
    lines, told = "\n".join(rows), "\n".join(f"- {line}" for line in wrong[:10])
    state = "it was busy with other work, and waiting for it is in these times" if before > 1 else "it was idle"
    text = f"""# nearfar explore under load

{describe()}; {arguments.clients} clients at once for {arguments.seconds:g} s, {arguments.rows:,} vectors of the encoder
{BACKBONE}, {os.environ.get("OMP_NUM_THREADS", "all")} thread(s) of torch; clients and server on {cores} core(s).
The load of the machine was {before:.1f} before: {state}.

| requests | answered | a second | p50, ms | p95, ms | p99, ms |
|---|---|---|---|---|---|
{lines}

Errors: {len(wrong)}.
{told}
Every client asks again as soon as it is answered, so a time is mostly waiting behind the other {arguments.clients - 1}.
"neighbours" are those of a sample, "search" has an uploaded JPEG of 64 pixels, which is decoded and embedded.

Run again: `python benchmarks/serve.py`.
"""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    print(text)
    if wrong:
        sys.exit(f"{len(wrong)} requests were not answered")


if __name__ == "__main__":
    main()
