"""What must not get in, and what must not get out."""

import asyncio
import io
import json
import pickle
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet
from starlette.testclient import TestClient

from nearfar.explore.batching import Batcher, BoundedPool, BusyError
from nearfar.explore.guard import COOKIE
from nearfar.explore.limits import Limits
from nearfar.explore.serve import guarded_app
from nearfar.explore.space import ExploredRun, Space
from nearfar.search.files import Embeddings
from nearfar.search.thumbnails import picture_of
from tests.explore.place import colors
from tests.search.test_text_query import color_towers
from tests.support.facts import facts, tells

PNG = {"Content-Type": "image/png"}
HERE = "http://127.0.0.1:8642"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ExploredRun:
    return colors(tmp_path_factory.mktemp("explore"), count=4)


@pytest.fixture(scope="module")
def client(run: ExploredRun) -> Iterator[TestClient]:
    limits = Limits(upload=100_000, pixels=1_000_000)
    with TestClient(guarded_app([run], "127.0.0.1", limits=limits), base_url=HERE) as client:
        yield client


# Names and paths


@pytest.fixture
def hostile(tmp_path: Path) -> Space:
    """Embeddings of someone else's, whose names lead out of the folder in every way."""
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "outside").mkdir()
    Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "outside" / "secret.png")
    Image.new("RGB", (8, 8), (0, 255, 0)).save(data / "fine.png")
    (data / "link.png").symlink_to(tmp_path / "outside" / "secret.png")
    (data / "folder").symlink_to(tmp_path / "outside")
    (data / "kin").symlink_to(data)
    names = [
        *("fine.png", "kin/fine.png", "../outside/secret.png", str(tmp_path / "outside" / "secret.png")),
        *("link.png", "folder/secret.png", "%2e%2e/outside/secret.png", "..\\outside\\secret.png", "a\0b", "", "."),
        *("kin/../../outside/secret.png", "gone.png", "/proc/self/environ"),
    ]
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.eye(len(names), 3, dtype=np.float32).ravel()), 3)
    table = pyarrow.table([pyarrow.array(names), vectors], names=["path", "vector"])
    parquet.write_table(
        table.replace_schema_metadata({"nearfar": json.dumps({"data": str(data)})}), tmp_path / "x.parquet"
    )
    return Space(color_towers(), Embeddings(tmp_path / "x.parquet"))


def test_no_name_leaves_the_folder(hostile: Space) -> None:
    with TestClient(guarded_app([ExploredRun("hostile", None, hostile)], "127.0.0.1"), base_url=HERE) as client:
        for row, name in enumerate(hostile.names):
            shown = client.get("/api/thumbnail", params={"row": row})
            with Image.open(io.BytesIO(shown.content)) as seen:
                pixel = seen.convert("RGB").getpixel((4, 4))
            inside = name in ("fine.png", "kin/fine.png")
            assert pixel == ((0, 255, 0) if inside else (200, 200, 200)), name
            assert ("x-problem" in shown.headers) != inside


def test_a_table_shows_nothing_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "data" / "fine.png")
    table = tmp_path / "data" / "t.csv"
    table.write_text(f"path\nfine.png\n../secret.png\n{tmp_path / 'secret.png'}\n")
    samples = color_towers().modality.find(str(table))
    for name in ("fine.png", str(tmp_path / "data" / "fine.png")):
        assert picture_of(samples, name, 8).shape == (8, 8, 3)
    for name in ("../secret.png", str(tmp_path / "secret.png")):
        with pytest.raises(ValueError, match=facts("folder")):
            picture_of(samples, name, 8)


@pytest.mark.parametrize(
    "path",
    [
        *("/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/%2fetc%2fpasswd"),
        *("/../../etc/passwd", "/api/thumbnail/../../x", "/static/map.js%00.css", "/static/", "/docs", "/redoc"),
    ],
)
def test_no_path_of_an_address_is_a_file(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 and "root:" not in answer.text


# Hosts, origins, tokens


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:8642"}, 200),
        ({"Host": "localhost:9000"}, 200),  # by a tunnel
        ({"Host": "[::1]:8642"}, 200),
        ({"Host": "evil.example"}, 400),
        ({"Host": "127.0.0.1.evil.example:8642"}, 400),
        ({"Host": "evil.example@127.0.0.1"}, 400),
        ({"Host": "10.0.0.7:8642"}, 400),
        ({"Host": ""}, 400),
        ({"Origin": HERE}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),  # another program on this machine
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ],
)
def test_host_and_origin_are_checked(client: TestClient, headers: dict[str, str], status: int) -> None:
    assert client.get("/api/runs", headers=headers).status_code == status


def test_another_site_may_link_to_the_page_alone(client: TestClient) -> None:
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=linked).status_code == 200
    assert client.get("/api/map", headers=linked).status_code == 403


def test_every_answer_has_the_policy_and_none_lets_others_read_it(client: TestClient) -> None:
    for path in ("/", "/api/runs", "/api/thumbnail?row=0", "/nowhere", "/static/map.js"):
        headers = client.get(path, headers={"Origin": HERE}).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert not [name for name in headers if name.startswith("access-control")]


def test_a_token_lets_one_browser_in_once(run: ExploredRun) -> None:
    told: list[str] = []
    app = guarded_app([run], "0.0.0.0", notify=told.append)
    with TestClient(app, base_url="http://10.0.0.7:8642", follow_redirects=False) as first:
        for path in (
            "/",
            "/api/runs",
            "/static/map.js",
            "/?token=",
            f"/?token={told[0][:-1]}",
            f"/api/runs?token={told[0]}",
        ):
            assert first.get(path).status_code == 401, path
        opened = first.get(f"/?token={told[0]}")
        assert opened.status_code == 303 and opened.headers["location"] == "/"
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and told[0] not in cookie
        assert first.get("/api/runs").status_code == 200
        assert len(told) == 2  # the next one
        with TestClient(app, base_url="http://10.0.0.7:8642", follow_redirects=False) as second:
            assert second.get(f"/?token={told[0]}").status_code == 401  # spent
            assert second.get("/api/runs", headers={"Cookie": f"{COOKIE}=x"}).status_code == 401
            assert second.get("/api/runs", headers={"Cookie": "\x7f;;=\t"}).status_code == 401
            assert second.get(f"/?token={told[1]}").status_code == 303
        assert first.get("/", headers={"Host": "evil.example"}).status_code == 400  # even with a cookie


def test_loopback_needs_no_token_unless_it_is_asked_for(run: ExploredRun, client: TestClient) -> None:
    assert client.get("/").status_code == 200
    with TestClient(guarded_app([run], "127.0.0.1", token=True), base_url=HERE) as careful:
        assert careful.get("/").status_code == 401


# Uploads


def bomb(side: int) -> bytes:
    """A PNG of side × side black pixels that is a few kB."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes((side // 8 + 1) * min(side, 2000)), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


class Ran:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a pickle was opened",)


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (bytes(100_001), 413, "100,000"),
        (bomb(1016), 422, "1016×1016 250,000"),
        (bomb(30_000), 422, "decompression bomb"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), 422, "cannot be read as a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", 422, "not an image"),  # Pillow would call Ghostscript
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422, "not an image"),
        (pickle.dumps(Ran()), 422, "not an image"),
    ],
)
def test_uploads_beyond_the_limits_are_refused(client: TestClient, content: bytes, status: int, told: str) -> None:
    for kind in ("image/png", "application/octet-stream"):
        answer = client.post("/api/search", content=content, headers={"Content-Type": kind})
        assert answer.status_code == status and tells(answer.json()["detail"], told), answer.text


def test_a_body_that_does_not_say_its_length_ends_too(client: TestClient) -> None:
    pieces = (bytes(10_000) for _ in range(1000))
    answer = client.post("/api/search", content=pieces, headers=PNG)
    assert answer.status_code == 413
    rows = client.post("/api/export", json={"rows": list(range(30_000))})
    assert rows.status_code == 413  # JSON, too


# Load


def test_what_waits_is_bounded_and_the_thread_outlives_an_error() -> None:
    go = threading.Event()

    def slow(jobs: list[int]) -> list[int | Exception]:
        go.wait(10)
        if 13 in jobs:
            raise ZeroDivisionError("unlucky")
        return [ValueError("odd") if job % 2 else 2 * job for job in jobs]

    batcher: Batcher[int, int] = Batcher(slow, batch=3, waiting=4)
    first = batcher.submit(0)
    time.sleep(0.05)  # taken, so four may wait
    waiting = [batcher.submit(job) for job in (2, 4, 6, 13)]
    with pytest.raises(BusyError, match=facts("requests")):
        batcher.submit(8)
    go.set()
    assert [f.result(10) for f in [first, *waiting[:3]]] == [0, 4, 8, 12]
    with pytest.raises(ZeroDivisionError):
        waiting[3].result(10)
    with pytest.raises(ValueError, match="odd"):
        batcher.submit(1).result(10)
    batcher.close()
    held = threading.Event()
    lane = BoundedPool(workers=1, waiting=2)
    both = [lane.submit(held.wait), lane.submit(held.wait)]
    with pytest.raises(BusyError):
        lane.submit(held.wait)
    held.set()
    assert all(f.result(10) for f in both) and lane.submit(lambda: 1).result(10) == 1
    lane.close()


def test_a_full_queue_is_a_503_and_a_batch_is_one_pass(run: ExploredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.space is not None
    go, sizes = threading.Event(), []
    plain = run.space.encoder.encode

    def slow(texts: list[str], **options: Any) -> torch.Tensor:
        go.wait(10)
        sizes.append(len(texts))
        return plain(texts, **options)

    monkeypatch.setattr(run.space.encoder, "encode", slow)
    app = guarded_app([run], "127.0.0.1", limits=Limits(batch=8, waiting=8))

    async def ask() -> list[int]:
        import httpx2

        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=HERE) as client:
            asked = [asyncio.create_task(client.post("/api/search", json={"text": "red"})) for _ in range(20)]
            await asyncio.sleep(0.5)
            go.set()
            answers = await asyncio.gather(*asked)
            assert all(a.headers.get("retry-after") == "1" for a in answers if a.status_code == 503)
            return [answer.status_code for answer in answers]

    statuses = asyncio.run(ask())
    assert set(statuses) == {200, 503} and 8 <= statuses.count(200) <= 16
    assert sum(sizes) == statuses.count(200) and max(sizes) == 8


def test_live_views_are_bounded(run: ExploredRun) -> None:
    guard = guarded_app([run], "127.0.0.1", limits=Limits(streams=0))
    with TestClient(guard, base_url=HERE) as client:
        refused = client.get("/api/live")
        assert refused.status_code == 503 and "live" in refused.json()["detail"]
