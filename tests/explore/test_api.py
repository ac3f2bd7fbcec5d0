"""The JSON API: what it says is what the embeddings say, and what it cannot do it says in a line."""

import csv
import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from starlette.testclient import TestClient

from nearfar.explore.layout import map_points
from nearfar.explore.live import LogReader
from nearfar.explore.serve import guarded_app
from nearfar.explore.space import ExploredRun, Space
from nearfar.report.projection import principal_components
from tests.explore.place import colors, log, log_line, space_of
from tests.search.test_text_query import color_towers
from tests.support.facts import tells

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ExploredRun:
    return colors(tmp_path_factory.mktemp("explore"))


@pytest.fixture(scope="module")
def space(run: ExploredRun) -> Space:
    assert run.space is not None
    return run.space


@pytest.fixture(scope="module")
def client(run: ExploredRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Run 0 is whole, run 1 has a third of its samples in another order, run 2 is in training."""
    folder = tmp_path_factory.mktemp("more")
    assert run.folder is not None
    data = run.folder.parent / "data" / "red"
    reds = ExploredRun("reds", None, space_of(data.parent, folder / "y.npz"))
    runs = [run, reds, ExploredRun("young", log(folder / "run"), None)]
    names = runs[1].space.names  # type: ignore[union-attr]
    kept = [row for row, name in enumerate(names) if name.startswith("red")][::-1]
    runs[1].space.names = [names[row] for row in kept]  # type: ignore[union-attr]
    runs[1].space.vectors.rows = runs[1].space.vectors.rows[kept]  # type: ignore[union-attr]
    runs[1].space.codes = runs[1].space.codes[kept]  # type: ignore[union-attr]
    with TestClient(guarded_app(runs, "127.0.0.1"), base_url="http://127.0.0.1:8642") as client:
        yield client


def picture(color: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (24, 24), color).save(file, format="PNG")
    return file.getvalue()


def test_runs_say_what_can_be_asked(client: TestClient) -> None:
    told = client.get("/api/runs").json()
    first, _, young = told["runs"]
    assert (first["kind"], first["rows"], first["dim"], first["texts"]) == ("image", 60, 3, True)
    assert (first["uploads"], first["labels"], first["live"], first["training"]) == ("image", 3, True, False)
    assert (young["kind"], young["live"], young["training"], young["state"]) == (None, True, True, "stopped")
    assert told["limits"]["upload"] == 20 << 20


def test_the_map_is_the_two_principal_directions(client: TestClient, space: Space) -> None:
    table = np.frombuffer(client.get("/api/map").content, "<f4").reshape(-1, 3)
    assert table.shape == (60, 3) and np.abs(table[:, :2]).max() == pytest.approx(1)
    x = space.vectors.rows.double().numpy()
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    for axis in range(2):  # up to sign, one scale and a shift
        assert abs(np.corrcoef(table[:, axis], u[:, axis] * s[axis])[0, 1]) == pytest.approx(1, abs=1e-4)
    labels = client.get("/api/labels").json()["labels"]
    assert labels == [{"name": name, "rows": 20} for name in ("blue", "green", "red")]
    assert [labels[int(code)]["name"] for code in table[:, 2]] == [name.split("/")[0] for name in space.names]


def test_one_dimension_and_one_row_have_a_map() -> None:
    assert map_points(torch.tensor([[1.0], [3.0]])).tolist() == [[-1, 0], [1, 0]]
    assert np.isfinite(map_points(torch.ones(1, 4))).all() and principal_components(torch.ones(3, 4), 2)[0].shape == (
        3,
        2,
    )


def test_without_umap_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'nearfar\[umap\]', or --map pca") as error:
        map_points(torch.eye(4), "umap")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("row", [0, 31])
@pytest.mark.parametrize("label", [None, "green"])
def test_neighbors_are_those_of_the_dense_definition(
    client: TestClient, space: Space, row: int, label: str | None
) -> None:
    z = F.normalize(space.vectors.rows.double())
    similar = z @ z[row]
    similar[row] = -2
    for other, name in enumerate(space.names):
        if label is not None and not name.startswith(label):
            similar[other] = -3
    wanted = similar.topk(7)
    asked = {"row": row, "k": 7} | ({"label": label} if label else {})
    hits = client.get("/api/neighbours", params=asked).json()["results"]
    np.testing.assert_allclose([hit["similarity"] for hit in hits], wanted.values, atol=2e-6)
    assert {hit["row"] for hit in hits} == set(wanted.indices.tolist())
    assert all(space.names[hit["row"]] == hit["name"] for hit in hits)
    same = client.post("/api/search", params={"k": 7} | ({"label": label} if label else {}), json={"row": row})
    assert same.json()["results"] == hits


@pytest.mark.parametrize("name", ["red", "green", "blue"])
def test_text_picture_and_vector_find_their_color(client: TestClient, name: str) -> None:
    color = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}[name]
    by_text = client.post("/api/search", params={"k": 5}, json={"text": f"a {name} square"}).json()
    by_picture = client.post(
        "/api/search", params={"k": 5}, content=picture(color), headers={"Content-Type": "image/png"}
    ).json()
    vector = client.post("/api/embed", json={"text": name}).json()
    by_vector = client.post("/api/search", params={"k": 5}, json={"vector": vector["vector"]}).json()
    assert vector["dim"] == 3
    for found in (by_text, by_picture, by_vector):
        assert [hit["label"] for hit in found["results"]] == [name] * 5
    assert by_text["results"] == by_vector["results"]


def test_embed_is_the_encoders_own(client: TestClient) -> None:
    told = client.post("/api/embed", content=picture((10, 200, 90)), headers={"Content-Type": "image/png"}).json()
    own = color_towers().encode(torch.tensor([10, 200, 90], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 24, 24))
    np.testing.assert_allclose(told["vector"], own[0].tolist(), atol=1e-6)


def test_the_neighbors_in_another_run_are_of_the_sample_of_that_name(client: TestClient, space: Space) -> None:
    row = next(row for row, name in enumerate(space.names) if name == "red/004.png")
    here = client.get("/api/neighbours", params={"row": row, "label": "red", "k": 6}).json()
    there = client.get("/api/neighbours", params={"row": row, "within": 1, "k": 6}).json()
    assert there["run"] == 1 and [hit["name"] for hit in there["results"]] == [hit["name"] for hit in here["results"]]
    blue = next(row for row, name in enumerate(space.names) if name.startswith("blue"))
    gone = client.get("/api/neighbours", params={"row": blue, "within": 1})
    assert gone.status_code == 404 and tells(gone.json()["detail"], "reds")


def test_samples_thumbnails_and_export(client: TestClient, space: Space) -> None:
    told = client.get("/api/samples", params={"row": [59, 0]}).json()["samples"]
    assert [each["name"] for each in told] == [space.names[59], space.names[0]]
    shown = client.get("/api/thumbnail", params={"row": 59})
    assert shown.headers["content-type"] == "image/png"
    with Image.open(io.BytesIO(shown.content)) as seen:
        r, g, b = np.asarray(seen.convert("RGB")).mean((0, 1))
    assert r > g and r > b  # the last is red
    table = client.post("/api/export", json={"rows": [2, 40]})
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert rows == [
        {"row": str(row), "path": space.names[row], "label": space.names[row].split("/")[0]} for row in (2, 40)
    ]
    assert "attachment" in table.headers["content-disposition"]


def test_duplicates_are_looked_for_and_told(client: TestClient) -> None:
    assert client.get("/api/duplicates").json()["state"] == "none"
    told = client.post("/api/duplicates", json={"threshold": 0.9999}).json()
    until = time.monotonic() + 10
    while told["state"] == "running" and time.monotonic() < until:
        time.sleep(0.02)
        told = client.get("/api/duplicates").json()
    assert told["state"] == "done" and told["done"] == told["total"] == 60
    for group in told["groups"]:
        assert group["rows"] > 1 and len({sample["label"] for sample in group["samples"]}) == 1
    assert told["count"] == len(told["groups"]) > 0


def events_of(text: str) -> list[tuple[str, Any]]:
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    return [(a.removeprefix("event: "), json.loads(b.removeprefix("data: "))) for a, b in blocks]


def test_the_log_is_told_as_events(client: TestClient) -> None:
    answer = client.get("/api/live", params={"run": 2, "follow": False})
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = events_of(answer.text)
    metrics = [content for name, content in told if name == "metrics"]
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5]
    assert metrics[0] == {"step": 1, "loss": 5.0, "lr": 0.1, "knn": 0.1}
    assert ("state", {"state": "stopped"}) in told
    assert next(c for n, c in told if n == "verdicts")[0]["text"] == "the rank is falling"


def test_news_come_as_they_are_written_and_a_log_begun_anew_is_said(tmp_path: Path) -> None:
    follower = LogReader(log(tmp_path / "run"))
    assert len(follower.news()) == 7 and follower.news() == []
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
        file.flush()
        assert follower.news() == []  # half a line
        file.write('ss": 0.5, "broken": NaN}\nno json\n')
        file.flush()
        assert follower.news() == [("metrics", {"step": 6, "loss": 0.5})]
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    log_line(tmp_path / "run", 1, loss=2.0)
    assert follower.news() == [("reset", {}), ("metrics", {"step": 1, "loss": 2.0})]


@pytest.mark.parametrize(
    ("method", "path", "given", "status", "told"),
    [
        ("GET", "/api/neighbours?row=60", {}, 404, "row 60 0 59"),
        ("GET", "/api/neighbours?row=-1", {}, 422, "query.row: Input should be greater than or equal to 0"),
        ("GET", "/api/neighbours?row=1&k=201", {}, 422, "query.k: Input should be less than or equal to 200"),
        ("GET", "/api/neighbours?row=1&run=9", {}, 404, "there is no run 9, expected from 0 to 2"),
        ("GET", "/api/neighbours?row=1&label=teal", {}, 404, "there is no label 'teal'"),
        ("GET", "/api/map?run=2", {}, 409, "young has no encoder yet"),
        ("GET", "/api/sound?row=1", {}, 404, "image cannot be played"),
        ("GET", "/api/live?run=1", {}, 404, "reds is not a run folder"),
        ("POST", "/api/search", {"json": {}}, 422, "nothing is given, expected one of text, row and vector"),
        ("POST", "/api/search", {"json": {"text": "a", "row": 1}}, 422, "text and row is given, expected one"),
        ("POST", "/api/search", {"json": {"text": "  "}}, 422, "the text is empty"),
        ("POST", "/api/search", {"json": {"text": "x" * 2001}}, 422, "at most 2000 characters"),
        ("POST", "/api/search", {"json": {"path": "/etc/passwd"}}, 422, "body.path"),
        ("POST", "/api/search", {"json": {"vector": [1.0, 2.0]}}, 422, "vector 2 3"),
        ("POST", "/api/search", {"json": {"vector": [0, 0, 0]}}, 422, "vector"),
        ("POST", "/api/search", {"json": {"vector": [1e300, 0, 0]}}, 422, "vector"),
        ("POST", "/api/search", {"content": b'{"text": ', "headers": JSON}, 422, "Invalid JSON"),
        ("POST", "/api/search", {"content": b"[" * 99999, "headers": JSON}, 422, "Invalid JSON"),
        ("POST", "/api/search", {"content": b"x"}, 415, "missing, expected application/json or image/*"),
        ("POST", "/api/search", {"content": b"x", "headers": {"Content-Type": "audio/wav"}}, 415, "is audio/wav"),
        ("POST", "/api/search", {"content": b"", "headers": {"Content-Type": "image/png"}}, 422, "not an image"),
        ("POST", "/api/export", {"json": {"rows": [60]}}, 404, "there is no row 60"),
        ("POST", "/api/export", {"json": {"rows": [5, 5]}}, 422, "some rows are given more than once"),
        ("POST", "/api/export", {"json": {"rows": []}}, 422, "body.rows: List should have at least 1 item"),
        ("POST", "/api/duplicates", {"json": {"threshold": 2}}, 422, "body.threshold"),
        ("DELETE", "/api/runs", {}, 405, "Method Not Allowed"),
    ],
)
def test_what_cannot_be_answered_is_told_in_a_line(
    client: TestClient, method: str, path: str, given: dict[str, Any], status: int, told: str
) -> None:
    answer = client.request(method, path, **given)
    assert answer.status_code == status, answer.text
    detail = answer.json()["detail"]
    assert tells(detail, told) and "\n" not in detail
