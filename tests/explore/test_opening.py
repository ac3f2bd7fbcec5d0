"""`nearfar explore`: what it opens, what it embeds, and what it refuses in a line."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from nearfar.cli import main
from nearfar.data.cache import locked
from nearfar.explore.live import state_of
from nearfar.explore.open_run import EMBEDDINGS, open_run
from nearfar.model.load import load
from tests.explore.place import log
from tests.search.pictures import folder_of, run_folder
from tests.support.facts import facts, tells


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("opening")
    run_folder(place / "run")
    folder_of(place / "pictures", 12)
    return place


def test_the_data_of_the_run_are_embedded_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)  # the card says: pictures
    first = open_run("run", load, progress=False)
    kept = place / "run" / EMBEDDINGS
    before = kept.stat().st_mtime_ns
    assert first.name == "run" and first.space is not None and len(first.space) == 12
    assert open_run("run", load, progress=False).space is not None and kept.stat().st_mtime_ns == before
    folder_of(place / "others", 5, first=50)
    other = open_run("run", load, data="others", progress=False)  # beside, and not instead
    assert other.space is not None and len(other.space) == 5 and kept.stat().st_mtime_ns == before
    given = open_run("run", load, embeddings=kept, data="others", progress=False)
    assert given.space is not None and given.space.samples.data == "others" and len(given.space) == 12


def test_a_run_in_training_has_its_log_alone(tmp_path: Path) -> None:
    run = open_run(str(log(tmp_path / "young")), load)
    assert run.space is None and run.folder == tmp_path / "young" and run.again is not None and run.again() is None
    with locked(run.folder):  # as a process that trains has it
        assert state_of(run.folder) == "training"
    assert state_of(run.folder) == "stopped"


def test_data_that_moved_are_on_the_map_still(place: Path, tmp_path: Path) -> None:
    """What was embedded is there; the pictures are not, and that is told of each."""
    shutil.copytree(place / "pictures", tmp_path / "pictures")
    run = tmp_path / "run"
    shutil.copytree(place / "run", run, ignore=shutil.ignore_patterns("*.parquet"))
    card = json.loads((run / "card.json").read_text())
    card["config"]["data"]["path"] = str(tmp_path / "pictures")
    (run / "card.json").write_text(json.dumps(card))
    assert open_run(str(run), load, progress=False).space is not None
    (tmp_path / "pictures").rename(tmp_path / "moved")
    again = open_run(str(run), load, progress=False)
    assert again.space is not None and len(again.space) == 12
    with pytest.raises((OSError, ValueError)):
        again.space.samples.read(again.space.names[0])
    (run / EMBEDDINGS).unlink()
    with pytest.raises((OSError, ValueError), match=facts("--data")):
        open_run(str(run), load, progress=False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "there is no run or file 'nowhere'"),
        (["pictures"], "holds neither an encoder nor a config.yaml"),
        (["run", "--embeddings", "nowhere.parquet"], "there is no file 'nowhere.parquet'"),
        (["run", "--embeddings", "other.npy"], "vectors of 4 numbers and the encoder gives 256"),
        (["run", "run", "--embeddings", "other.npy"], "2 runs and 1 --embeddings, expected one for each"),
        (["run", "--data", "nowhere"], "there is no file or folder 'nowhere'"),
        (["run", "--port", "99999"], "the port is 99999, expected from 0"),
        (["run", "--host", "300.1.1.1"], "cannot serve on 300.1.1.1 port 8642"),
        (["run", "--port", "TAKEN"], "(Address already in use); give another --port"),
    ],
)
def test_bad_arguments_are_told_in_a_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    import numpy as np

    monkeypatch.chdir(place)
    np.save("other.npy", np.eye(4, dtype=np.float32))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["explore", *(port if word == "TAKEN" else word for word in words)]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and tells(lines[0], told), lines


def test_without_the_extra_it_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "uvicorn" else found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    assert main(["explore", str(place / "run")]) == 1
    assert tells(capsys.readouterr().err, "'nearfar[serve]'")


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    run = log(tmp_path / "young")
    words = [sys.executable, "-m", "nearfar", "explore", str(run), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            assert tells(process.stdout.readline(), "young log")
            address = process.stdout.readline().removeprefix("explore: ").strip()
            assert address.startswith("http://127.0.0.1:") and tells(process.stdout.readline(), "Ctrl-C")
            with urllib.request.urlopen(f"{address}api/live?follow=false", timeout=20) as answer:
                assert b"event: metrics" in answer.read()
        finally:
            os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 0 and process.stderr.read() == ""
