"""An encoder on the hub: what is uploaded is what is opened, and it says nothing of the machine that trained it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelHubMixin

import nearfar
from nearfar.model.encoder import Encoder
from nearfar.model.export.hub_page import public_card, readme
from nearfar.weights import hub
from tests.support.facts import facts, tells
from tests.support.hub import connect
from tests.support.untrained import untrained_run

IMAGES = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
ROW = {"protocol": "knn", "metric": "accuracy", "low": None, "high": None, "data": "photos", "split": "test", "n": 80}


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return connect(tmp_path / "hub", monkeypatch)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run on data in a secret place, evaluated."""
    data = tmp_path / "secret-root" / "photos"
    data.mkdir(parents=True)
    folder = untrained_run(tmp_path / "home" / "run", data=str(data), image_size=32, modality="image")
    values = {"trained": 0.83, "untrained": 0.4, "raw": 0.35}
    rows = [{**ROW, "encoder": name, "value": value, "data": str(data)} for name, value in values.items()]
    (folder / "evaluation.json").write_text(json.dumps({"results": rows}))
    card = json.loads((folder / "card.json").read_text())
    card = {**card, "verdict": f"better than its start and than raw on {data}.", "verdict_level": "good"}
    (folder / "card.json").write_text(json.dumps(card))
    return folder


def test_what_is_exported_and_pushed_is_loaded_by_its_name(run: Path, network: Path) -> None:
    done = nearfar.export(run, "huggingface", push="me/birds")
    assert tells(str(done), "uploaded me/birds")
    encoder, own = nearfar.load("me/birds"), nearfar.load(run)
    assert torch.equal(encoder.encode(IMAGES), own.encode(IMAGES)) and encoder.digest() == own.digest()
    page = (network / "me/birds/README.md").read_text()
    assert 'nearfar.load("me/birds")' in page and "better than its start" in page
    assert "| knn | accuracy | 83.0 % | 40.0 % | 35.0 % | photos test | 80 |" in page


def test_the_mixin_pushes_saves_and_opens(run: Path, network: Path, tmp_path: Path) -> None:
    own = nearfar.load(run)
    assert isinstance(own, ModelHubMixin)
    assert own.push_to_hub("me/cats", private=True) == "https://hub/me/cats/commit/1"
    assert torch.equal(Encoder.from_pretrained("me/cats").encode(IMAGES), own.encode(IMAGES))
    assert 'nearfar.load("me/cats")' in (network / "me/cats/README.md").read_text()
    own.save_pretrained(tmp_path / "saved")
    assert torch.equal(Encoder.from_pretrained(tmp_path / "saved").encode(IMAGES), own.encode(IMAGES))
    assert json.loads((tmp_path / "saved/config.json").read_text())["num_features"] == own.num_features


def test_no_file_names_a_place_of_the_machine(run: Path, network: Path, tmp_path: Path) -> None:
    nearfar.load(run).push_to_hub("me/cats")
    nearfar.export(run, "huggingface", push="me/birds")
    for file in (each for each in network.rglob("*") if each.is_file() and each.suffix != ".safetensors"):
        text = file.read_text()
        assert not any(word in text for word in (str(tmp_path), str(Path.home()), "secret-root", "home/run")), file
    assert json.loads((network / "me/birds/card.json").read_text())["config"]["data"]["path"] == "photos"


@pytest.mark.parametrize("text", ["~/a/b.csv", "/a/b.csv", "timm:resnet18=/x/a/b.csv", "C:\\\\a\\b.csv"])
def test_of_a_path_the_name_stays(text: str) -> None:
    found = public_card({"weights": text, "line": f"kept {text}, better", "config": {}})
    assert found["weights"].endswith("b.csv") and not re.search(r"a[/\\]", found["weights"])
    assert found["line"].endswith("b.csv, better") and not re.search(r"a[/\\]", found["line"])
    words = {"metric": "R@1 1/5", "address": "https://a.org/b/c", "backbone": "torchvision:resnet18"}
    assert public_card(words) == words


@pytest.mark.parametrize("modality", ["sound", "series", "text"])
def test_every_kind_has_a_page(modality: str) -> None:
    page = readme({"modality": modality, "backbone": "x", "num_features": 8, "method": "simclr"})
    assert "import nearfar" in page and "(N, 8)" in page and "Not evaluated" in page


def test_what_cannot_be_fetched_or_pushed_says_why(run: Path, network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=facts("me/none hub 404")) as error:
        nearfar.load("me/none")
    assert "\n" not in str(error.value)
    (network / "me/other").mkdir(parents=True)
    with pytest.raises(ValueError, match=facts("me/other card.json hf:me/other")):
        nearfar.load("me/other")
    with pytest.raises(ValueError, match=facts("user/name 'me'")):
        nearfar.load(run).push_to_hub("me")
    with pytest.raises(ValueError, match=facts("push huggingface onnx")):
        nearfar.export(run, "onnx", push="me/x")

    def refuse(**_: Any) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", refuse)
    with pytest.raises(RuntimeError, match=facts("me/x hf auth login")) as refused:
        nearfar.load(run).push_to_hub("me/x")
    assert "\n" not in str(refused.value)


def test_a_mistyped_path_is_not_looked_for_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_is_reachable", lambda: pytest.fail("the hub was asked"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(FileNotFoundError, match=facts("runs/photo")):
        nearfar.load("runs/photo")
