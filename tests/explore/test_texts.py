"""Runs on sentences: embedded, searched from the command line, and explored by words alone."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from nearfar.cli import main
from nearfar.config import TrainConfig, completed
from nearfar.explore.open_run import open_run
from nearfar.explore.serve import guarded_app
from nearfar.explore.space import ExploredRun
from nearfar.model.load import load
from nearfar.model.save import CARD, MODEL
from nearfar.search.files import Embeddings
from nearfar.settings import build
from tests.explore.place import log, serving
from tests.support.facts import tells
from tests.support.models import save_untrained

SAID = [f"{word} {thing}" for thing in ("rain tomorrow", "a loan") for word in ("is there", "tell me of", "I want")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned nothing, on a table of sentences with labels."""
    folder = tmp_path_factory.mktemp("texts")
    rows = [f"{text},{'weather' if 'rain' in text else 'bank'}" for text in SAID]
    (folder / "said.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    given = {"data": str(folder / "said.csv"), "method": "simcse", "backbone": "text-micro"}
    small = {"encoder": "text-micro", "vocab_size": 300, "max_length": 12}
    config: TrainConfig = build(TrainConfig, completed({**given, "text": small}), "test")
    save_untrained(config, folder / "run")
    return folder


@pytest.fixture(scope="module")
def run(place: Path) -> ExploredRun:
    return open_run(str(place / "run"), load, progress=False)


@pytest.fixture(scope="module")
def client(run: ExploredRun) -> Iterator[TestClient]:
    with TestClient(guarded_app([run], "127.0.0.1"), base_url="http://127.0.0.1:8642") as client:
        yield client


def test_embed_writes_what_the_encoder_says_of_each_sentence(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "said.parquet"
    assert main(["embed", str(place / "run"), str(place / "said.csv"), "-o", str(out)]) == 0
    file, model = Embeddings(out), load(place / "run")
    assert list(file.names()) == SAID and list(file.labels() or []) == ["weather"] * 3 + ["bank"] * 3
    expected = torch.cat([model.encode([text]) for text in SAID])  # one by one: no other text pads them
    torch.testing.assert_close(torch.cat([x for _, x in file.pieces()]), expected, atol=1e-5, rtol=1e-4)
    capsys.readouterr()
    assert main(["search", str(place / "run"), str(out), "--text", SAID[4], "-k", "2"]) == 0
    first = next(line for line in capsys.readouterr().out.splitlines() if "1.0000" in line)
    assert SAID[4] in first and "bank" in first


@pytest.mark.parametrize("flags", [["--image", "x.png"], ["--sound", "x.wav"], ["--text", "a", "-o", "x.png"]])
def test_a_text_encoder_is_asked_in_words(
    flags: list[str], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x.png", "x.wav"):
        Path(name).touch()
    if not (place / "six.npz").exists():
        assert main(["embed", str(place / "run"), str(place / "said.csv"), "-o", str(place / "six.npz")]) == 0
    assert main(["search", str(place / "run"), str(place / "six.npz"), *flags]) == 1
    assert tells(capsys.readouterr().err, "text --text")


def test_the_api_answers_with_sentences(client: TestClient, run: ExploredRun) -> None:
    assert run.space is not None and run.space.encoder.modality.name == "text"
    told = client.get("/api/runs").json()["runs"][0]
    assert (told["kind"], told["uploads"], told["texts"], told["rows"]) == ("text", None, True, 6)
    found = client.post("/api/search", params={"k": 1}, json={"text": SAID[2]}).json()["results"][0]
    assert found["name"] == SAID[2] and found["similarity"] == pytest.approx(1, abs=1e-4)
    assert client.get("/api/thumbnail", params={"row": 0}).headers["X-Problem"]
    assert client.post("/api/search", content=b"x", headers={"Content-Type": "image/png"}).status_code == 415


def test_the_page_shows_words_and_no_pictures(browser: Any, run: ExploredRun) -> None:
    with serving(guarded_app([run], "127.0.0.1")) as address:
        page = browser.new_page(viewport={"width": 900, "height": 700})
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(address)
        page.locator("body[data-run='0']").wait_for()
        page.fill("#text", SAID[5])
        page.press("#text", "Enter")
        page.locator("#found .hit.text").first.wait_for()
        assert page.locator("#found .n").first.text_content() == SAID[5]
        page.locator("#found .hit").nth(1).click()
        second = page.locator("#query span")
        second.filter(has_not_text=SAID[5]).wait_for()
        assert (second.text_content() or "").strip("“”") in SAID
        page.locator("#marks").focus()
        assert page.locator("#found img").count() == 0 and page.locator("#by-file").is_hidden()
        assert [text for text in said if "GPU stall" not in text] == []
        page.close()


def finish(run: Path, folder: Path) -> None:
    """What a run writes at its end, in its order: each file whole, the tokenizer was there before."""
    for name in ("tokenizer.json", MODEL, CARD):
        shutil.copy(run / name, folder / f"{name}.tmp")
        (folder / f"{name}.tmp").replace(folder / name)


def test_a_run_that_is_done_gets_its_map(place: Path, tmp_path: Path, browser: Any) -> None:
    """It is opened in training; then the encoder is written."""
    folder = log(tmp_path / "young")
    run = open_run(str(folder), load, progress=False)
    with serving(guarded_app([run], "127.0.0.1")) as address:
        page = browser.new_page(viewport={"width": 900, "height": 700})
        page.goto(address)
        page.locator("body[data-run='0']").wait_for()
        assert page.locator("#map-section").is_hidden()
        finish(place / "run", folder)
        page.locator("#map-section").wait_for()
        page.locator("#status", has_text="is ready").wait_for()
        assert "6 samples" in (page.locator("#about").text_content() or "")
        page.close()


def test_why_a_run_that_is_done_cannot_be_shown(place: Path, tmp_path: Path) -> None:
    folder = log(tmp_path / "young")
    run = open_run(str(folder), load, data=str(tmp_path / "moved.csv"), progress=False)
    with TestClient(guarded_app([run], "127.0.0.1"), base_url="http://127.0.0.1:8642") as client:
        assert client.get("/api/runs").json()["runs"][0]["problem"] is None
        finish(place / "run", folder)
        end = time.monotonic() + 20
        while (told := client.get("/api/runs").json()["runs"][0])["problem"] is None and time.monotonic() < end:
            time.sleep(0.05)
        assert told["training"] and "moved.csv" in told["problem"]
