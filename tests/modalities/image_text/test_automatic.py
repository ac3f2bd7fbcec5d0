"""Automatic settings of runs on captioned images: typical situations, and what the user said stays."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from nearfar.config import TrainConfig, completed
from nearfar.methods import known_method
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.image.automatic import PictureFacts
from nearfar.modalities.image_text.automatic import choose
from nearfar.settings import build
from nearfar.weights.packages import is_installed


class OnGPU(Request):
    @property
    def device(self) -> torch.device:
        return torch.device("cuda")


def chosen(device: str, count: int, side: int, **given: Any) -> Automatic:
    method = known_method("clip")
    request = OnGPU(given, method) if device == "cuda" else Request({"device": "cpu", **given}, method)
    return choose(request, PictureFacts(count, side))


@pytest.mark.parametrize(  # the table of docs/automatic.md
    ("device", "count", "side", "backbone", "text", "size", "batch", "views", "time"),
    [
        ("cpu", 5_000, 64, "quick", "text-bag", 48, 128, "clip_few", "10m"),
        ("cpu", 5_000, 400, "quick", "text-bag", 64, 128, "clip_few", "10m"),
        ("cpu", 100, 32, "quick", "text-bag", 32, 32, "clip_few", "10m"),
        ("cuda", 5_000, 400, "resnet18", "text-tiny", 224, 512, "clip_few", "4h"),
        ("cuda", 1_000_000, 400, "resnet50", "text-small", 224, 512, None, "4h"),
    ],
)
def test_typical_situations(
    device: str,
    count: int,
    side: int,
    backbone: str,
    text: str,
    size: int,
    batch: int,
    views: str | None,
    time: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    found = chosen(device, count, side).settings
    assert (found["backbone"], found["text"]["encoder"], found["image_size"]) == (backbone, text, size)
    assert (found["batch_size"], found.get("views", {}).get("preset"), found["time"]) == (batch, views, time)
    assert found["optimizer"]["name"] == ("muon" if device == "cpu" else "adamw")


def test_what_the_user_says_stays() -> None:
    assert "optimizer" not in chosen("cpu", 5_000, 64, optimizer={"lr": 1e-3}).settings
    assert "time" not in chosen("cpu", 5_000, 64, epochs=3).settings


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    lines = ["path,caption"]
    for i in range(20):
        Image.new("RGB", (64, 64), (10 * i, 0, 0)).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png,shade {i}")
    (tmp_path / "pairs.csv").write_text("\n".join(lines))
    return str(tmp_path / "pairs.csv")


def test_a_table_of_captions_is_looked_at(pairs: str) -> None:
    config: TrainConfig = build(TrainConfig, completed({"data": pairs, "method": "clip", "device": "cpu"}), "train")
    assert (config.backbone, config.text.encoder, config.image_size) == ("quick", "text-bag", 48)
    assert any(note.startswith("text.encoder text-bag") for note in config.notes)


@pytest.mark.skipif(not is_installed("minilm"), reason="needs the extra weights")
@pytest.mark.parametrize("given", [{"text": {"weights": "package:minilm"}}, {"weights": "package:efficientnet-lite0"}])
def test_towers_with_weights_keep_their_settings(pairs: str, given: dict[str, Any]) -> None:
    found = completed({"data": pairs, "method": "clip", "device": "cpu", **given})
    assert found.get("backbone") != "quick"
    assert found["optimizer"]["name"] == "adamw"


@pytest.mark.skipif(not is_installed("minilm"), reason="needs the extra weights")
def test_two_towers_with_weights_take_small_steps_from_fitted_projections(pairs: str) -> None:
    weights = {"weights": "package:efficientnet-lite0", "text": {"weights": "package:minilm"}}
    found = completed({"data": pairs, "method": "clip", "device": "cpu", **weights})
    assert (found["adapt"]["projections"], found["adapt"]["freeze_blocks"], found["image_size"]) == ("fitted", 5, 96)
    assert completed({"data": pairs, "method": "lit", "device": "cpu", **weights})["image_size"] == 128
    assert "adapt" not in completed({"data": pairs, "method": "clip", "recipe": "paper", **weights})


def test_the_recipe_paper_has_nothing_automatic(pairs: str) -> None:
    assert "notes" not in completed({"data": pairs, "method": "clip", "recipe": "paper"})
