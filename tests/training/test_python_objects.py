"""`nearfar.train` with Python objects: the same run as on a file of the same samples, stopped and resumed alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import nearfar
from nearfar.config import TrainConfig
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
