"""What a person makes of the samples: saved selections, and duplicates as a list that the next run takes."""

import csv
import json
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from nearfar.data import with_groups
from nearfar.explore.app import make_app
from nearfar.explore.curation import save_selection, saved_selections, write_duplicates
from nearfar.explore.space import ExploredRun
from nearfar.modalities.image.data.opening import open_images
from tests.explore.place import colors, squares
from tests.support.facts import facts, tells


@pytest.fixture
def run(tmp_path: Path) -> ExploredRun:
    return colors(tmp_path, 4)


def test_selections_are_kept_beside_the_run(run: ExploredRun) -> None:
    assert run.folder is not None and run.space is not None
    with TestClient(make_app([run])) as client:
        assert client.get("/api/selections").json() == {"selections": []}
        told = client.post("/api/selections", json={"name": " odd  ones ", "rows": [5, 2, 5]}).json()
        assert told == client.get("/api/selections").json() == {"selections": [{"name": "odd ones", "rows": [2, 5]}]}
        found = json.loads((run.folder / "selections.json").read_text())["selections"]
        assert found == {"odd ones": [run.space.names[2], run.space.names[5]]}
        assert client.post("/api/selections", json={"name": "odd ones", "rows": []}).json() == {"selections": []}
        assert client.post("/api/selections", json={"name": "x", "rows": [12]}).status_code == 404
        assert client.post("/api/selections", json={"name": "\n", "rows": [1]}).status_code == 409
        (run.folder / "selections.json").write_text("[broken")
        refused = client.post("/api/selections", json={"name": "x", "rows": [1]})
        assert refused.status_code == 409 and tells(refused.json()["detail"], "selections.json")
        assert (run.folder / "selections.json").read_text() == "[broken"


def test_a_selection_survives_other_samples(tmp_path: Path) -> None:
    """Names are kept, not rows: a selection means the same after the data have grown."""
    path = tmp_path / "selections.json"
    save_selection(path, "a", ["x.png", "gone.png"])
    assert saved_selections(path) == {"a": ["x.png", "gone.png"]}
    for name in ("", " ", "a\0b", "x" * 81):
        with pytest.raises(ValueError, match=facts("name 80")):
            save_selection(path, name, ["x.png"])


@pytest.mark.parametrize("choice", ["merge", "drop"])
def test_duplicates_become_a_list_that_a_run_takes(run: ExploredRun, choice: str, tmp_path: Path) -> None:
    assert run.folder is not None and run.space is not None
    with TestClient(make_app([run])) as client:
        assert client.post("/api/duplicates/list", json={"choice": choice}).status_code == 409
        told = client.post("/api/duplicates", json={"threshold": 0.99}).json()
        while told["state"] == "running":
            time.sleep(0.02)
            told = client.get("/api/duplicates").json()
        assert told["count"] > 0
        found = client.post("/api/duplicates/list", json={"choice": choice}).json()
        assert found["flag"] == f"--data.groups-file {run.folder / 'duplicates.csv'}"
    with (run.folder / "duplicates.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == found["samples"] and {row["group"] for row in rows} == set(map(str, range(found["groups"])))
    data = open_images(str(tmp_path / "data"), progress=False)
    after = with_groups(data, run.folder / "duplicates.csv")
    left_out = sum(row["drop"] == "yes" for row in rows)
    assert left_out == (found["samples"] - found["groups"] if choice == "drop" else 0)
    assert len(after) == len(data) - left_out and after.groups is not None
    groups = {row["path"]: row["group"] for row in rows}
    named = [
        (groups[name], int(group)) for name, group in zip(after.names, after.groups, strict=True) if name in groups
    ]
    assert len(set(named)) == found["groups"]  # one id for each group


def test_to_drop_all_is_refused(tmp_path: Path) -> None:
    data = open_images(str(squares(tmp_path / "data", 2)), progress=False)
    write_duplicates(tmp_path / "d.csv", list(data.names), [list(range(len(data)))], "drop")
    assert len(with_groups(data, tmp_path / "d.csv")) == 1
    (tmp_path / "d.csv").write_text("path,group,drop\n" + "".join(f"{name},0,YES\n" for name in data.names))
    with pytest.raises(ValueError, match=facts("drop d.csv")):
        with_groups(data, tmp_path / "d.csv")


def test_selections_of_a_stranger(run: ExploredRun) -> None:
    """A link to a device was read without end, and half a surrogate pair was an error of the server."""
    assert run.folder is not None and run.space is not None
    path = run.folder / "selections.json"
    with TestClient(make_app([run])) as client:
        path.symlink_to("/dev/zero")
        assert client.get("/api/selections").status_code == 409
        path.unlink()
        path.write_text(json.dumps({"selections": {"\ud800": [run.space.names[1], "\udfff"]}}))
        (found,) = client.get("/api/selections").json()["selections"]
        assert found["rows"] == [1]
