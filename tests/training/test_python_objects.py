"""`nearfar.train` with Python objects: the same run as on a file of the same samples, stopped and resumed alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import nearfar
from nearfar.config import TrainConfig
from nearfar.methods import SimCLR
from nearfar.modalities.image.data.opening import open_images
from nearfar.python_objects import MissingObjectError, is_object, release
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts
from tests.training.runs import stop_after

SMALL: dict[str, Any] = {
    "backbone": "micro",
    "image_size": 16,
    "batch_size": 16,
    "steps": 6,
    "checkpoint_every": 1,
    "views": {"preset": "simclr", "color": "vary", "orientation": "flip", "scale": "vary"},
    "precision": "32",
    "embedding": "plain",
}


@pytest.fixture(scope="module")
def glyphs() -> tuple[NDArray[np.uint8], torch.Tensor]:
    data = open_images("glyphs:100")
    assert data.labels is not None
    return np.asarray(data.images), data.labels  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def _quick(train_only: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def weights(encoder: torch.nn.Module) -> dict[str, torch.Tensor]:
    return encoder.state_dict()


def test_a_run_on_arrays_is_the_run_on_a_file_of_them(
    glyphs: tuple[NDArray[np.uint8], torch.Tensor], tmp_path: Path
) -> None:
    np.savez(tmp_path / "glyphs.npz", x=glyphs[0], y=glyphs[1].numpy())
    by_file = nearfar.train(tmp_path / "glyphs.npz", out="file", **SMALL)
    by_array = nearfar.train(glyphs, out="array", **SMALL)
    for name, x in weights(by_file).items():
        assert torch.equal(x, weights(by_array)[name]), name
    config = TrainConfig.from_yaml(Path("array/config.yaml"))
    assert is_object(config.data.path)


def test_a_stopped_run_asks_for_the_same_object_and_ends_in_the_same_weights(
    glyphs: tuple[NDArray[np.uint8], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = glyphs[0]
    whole = nearfar.train(images, out="whole", **SMALL)
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            nearfar.train(images, out="stopped", **SMALL)
    release(TrainConfig.from_yaml(Path("stopped/config.yaml")).data.path)  # as in another process
    with pytest.raises(MissingObjectError, match=facts("python:array-100 data=")):
        nearfar.train(resume="stopped")
    with pytest.raises(ValueError, match=facts("data changed")):
        nearfar.train(images[::-1].copy(), resume="stopped")
    resumed = nearfar.train(images.copy(), resume="stopped")
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_resume_takes_no_data_that_the_run_has_by_path(
    glyphs: tuple[NDArray[np.uint8], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(2, monkeypatch)
    with pytest.raises(TrainingStopped):
        nearfar.train("glyphs:100", out="stopped", **SMALL)
    with pytest.raises(ValueError, match=facts("resume glyphs:100")):
        nearfar.train(glyphs[0], resume="stopped")


def test_the_user_is_told_what_no_file_holds(
    glyphs: tuple[NDArray[np.uint8], torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    nearfar.train(glyphs[0], out="told", **SMALL)
    assert "python:array-100" in capsys.readouterr().out


def test_series_and_texts_are_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    waves = np.random.default_rng(0).normal(size=(40, 60)).astype(np.float32)
    series = nearfar.train(waves, steps=2, out="series")
    assert series.modality.name == "series" and series.encode(torch.from_numpy(waves[:3, None])).shape[0] == 3
    texts = nearfar.train([f"the {n}. sentence of many" for n in range(60)], steps=2, out="texts")
    assert texts.modality.name == "text"


# Networks and methods


class Net(nn.Module):
    """A small convolutional network without `num_features`; `maps` gives feature maps in place of a matrix."""

    def __init__(self, *, maps: bool = False) -> None:
        super().__init__()
        self.conv, self.norm, self.maps = nn.Conv2d(3, 12, 3, 2, 1), nn.BatchNorm2d(12), maps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.conv(x)).relu()
        return h if self.maps else h.mean((2, 3))


OWN = {name: value for name, value in SMALL.items() if name != "backbone"}


@pytest.mark.parametrize("maps", [False, True])
def test_a_network_of_ones_own_is_trained_as_a_copy(
    maps: bool, glyphs: tuple[NDArray[np.uint8], torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(3)
    net = Net(maps=maps)
    before = {name: x.clone() for name, x in net.state_dict().items()}
    encoder = nearfar.train(glyphs[0], encoder=net, out="own", **OWN)
    assert "python:Net" in capsys.readouterr().out
    assert encoder.num_features == 12 and encoder.card["backbone"].startswith("python:Net")
    for name, x in net.state_dict().items():  # the copy alone was trained
        assert torch.equal(x, before[name])
    trained = dict(encoder.backbone.named_parameters())
    assert not torch.equal(trained["network.conv.weight" if maps else "conv.weight"], net.conv.weight)
    release(encoder.card["backbone"])  # as in another process
    with pytest.raises(MissingObjectError, match=facts("python:Net encoder=")):
        nearfar.load("own")
    again = nearfar.load("own", encoder=Net(maps=maps))
    images = glyphs[0][:5]
    assert torch.equal(again.encode(images), encoder.encode(images))


def test_a_stopped_run_of_ones_own_network_asks_for_it(
    glyphs: tuple[NDArray[np.uint8], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    whole = nearfar.train("glyphs:100", encoder=net, out="whole", **OWN)
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            nearfar.train("glyphs:100", encoder=net, out="stopped", **OWN)
    release(TrainConfig.from_yaml(Path("stopped/config.yaml")).backbone)
    with pytest.raises(MissingObjectError, match=facts("encoder=")):
        nearfar.train(resume="stopped")
    resumed = nearfar.train(resume="stopped", encoder=Net())  # its weights are in the checkpoint
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_networks_that_cannot_be_used_are_refused_before_data_are_read() -> None:
    with pytest.raises(ValueError, match=facts("Linear (2, 3, 16, 16)")):
        nearfar.train("glyphs:100", encoder=nn.Linear(7, 4), out="x", **OWN)
    with pytest.raises(ValueError, match=facts("(1536,) (B, F)")):
        nearfar.train("glyphs:100", encoder=nn.Sequential(nn.Flatten(0)), out="x", **OWN)
    with pytest.raises(TypeError, match=facts("encoder int")):
        nearfar.train("glyphs:100", encoder=3, out="x", **OWN)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=facts("encoder backbone")):
        nearfar.train("glyphs:100", encoder=Net(), out="x", **SMALL)
    with pytest.raises(ValueError, match=facts("encoder sentences")):
        nearfar.train(["a sentence", "another one"] * 20, encoder=Net(), out="x")


class TwiceSimCLR(SimCLR):
    """A method of one's own, of this file."""

    name = "twice"
    loss_weight = 2.0


def test_a_method_may_be_a_class_or_an_instance() -> None:
    by_name = nearfar.train("glyphs:100", method="simclr", out="name", **SMALL)
    by_class = nearfar.train("glyphs:100", method=SimCLR, out="class", **SMALL)
    assert by_class.card["method"] == "simclr"
    for name, x in weights(by_name).items():
        assert torch.equal(x, weights(by_class)[name]), name
    own = nearfar.train("glyphs:100", method=TwiceSimCLR, out="own", **SMALL)
    assert own.card["method"] == f"{__name__}:TwiceSimCLR"

    class Local(SimCLR):
        name = "local"

    local = nearfar.train("glyphs:100", method=Local, out="local", **SMALL)
    assert local.card["method"].startswith("python:Local")
    method = SimCLR(Net(), features=12, samples=100, temperature=0.3)
    encoder = nearfar.train("glyphs:100", method=method, out="instance", **OWN)
    assert encoder.num_features == 12 and encoder.card["method"].startswith("python:SimCLR")
    with pytest.raises(TypeError, match=facts("method Net")):
        nearfar.train("glyphs:100", method=Net, out="x", **SMALL)  # type: ignore[arg-type]


# Views


def crops(batch: torch.Tensor) -> list[torch.Tensor]:
    """Two random crops of a batch of glyphs."""
    places = torch.randint(0, 17, (2, 2)).tolist()
    return [batch[:, :, y : y + 16, x : x + 16] for y, x in places]


PLAIN = {name: value for name, value in SMALL.items() if name != "views"}


def test_views_of_ones_own_resume_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nearfar.train("glyphs:100", views=crops, out="whole", **PLAIN)
    assert whole.modality.config.views.count == 2
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            nearfar.train("glyphs:100", views=crops, out="stopped", **PLAIN)
    release(str(TrainConfig.from_yaml(Path("stopped/config.yaml")).views.preset))
    with pytest.raises(MissingObjectError, match=facts("views=")):
        nearfar.train(resume="stopped")
    resumed = nearfar.train(resume="stopped", views=crops)
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_a_run_with_views_of_ones_own_loads_where_they_are_not() -> None:
    encoder = nearfar.train("glyphs:100", views=crops, out="views", **PLAIN)
    release(str(encoder.modality.config.views.preset))
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    assert torch.equal(nearfar.load("views").encode(images), encoder.encode(images))


def test_the_size_and_scale_of_views_are_those_of_the_encoder() -> None:
    settings = {name: value for name, value in PLAIN.items() if name != "image_size"}
    views = nearfar.CustomViews(lambda x: x[:, :, :20, :20] / 255 * 2 - 1, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    encoder = nearfar.train("glyphs:100", views={"preset": views, "count": 2}, out="scaled", **settings)
    assert encoder.card["image_size"] == 20 and encoder.card["mean"] == [0.5, 0.5, 0.5]
    with pytest.raises(ValueError, match=facts("(20, 20) image_size 16")):
        nearfar.train("glyphs:100", views=views, out="x", **PLAIN)
    with pytest.raises(ValueError, match=facts("views series")):
        nearfar.train("waves:60", views=crops, out="x", steps=1)
