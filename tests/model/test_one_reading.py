"""A picture gives the same embedding however it is read: by `encode`, `open`, evaluation, search or an ONNX file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import nearfar
from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.evaluation.evaluate import Evaluation
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.modality import ImageModality
from nearfar.model.encoder import Encoder
from nearfar.model.export.export import export
from tests.support.models import save_model


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten pictures of noise in two classes, of 32 pixels, as other data than the run's."""
    folder = tmp_path_factory.mktemp("reading") / "photos"
    for number in range(10):
        file = folder / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(file)
    return folder


@pytest.fixture(scope="module", params=[32, None, 40])
def run(request: pytest.FixtureRequest, photos: Path) -> Path:
    """A run that stores its pictures at their own size, as the automatic settings have it; or not."""
    config = TrainConfig(
        data=DataConfig("elsewhere", stored_size=request.param), backbone="micro", image_size=32, modality="image"
    )
    folder = photos.parent / f"run-{request.param}"
    folder.mkdir()
    torch.manual_seed(0)
    save_model(backbone("micro", size=32), config, ImageModality(config).card(), folder)
    return folder


def embedded(encoder: Encoder, photos: Path) -> dict[str, torch.Tensor]:
    names = [str(file.relative_to(photos)) for file in sorted(photos.rglob("*.png"))]
    return dict(zip(names, encoder.encode([photos / name for name in names]), strict=True))


def test_encode_open_evaluate_search_and_onnx_agree(run: Path, photos: Path) -> None:
    encoder = nearfar.load(run)
    expected = embedded(encoder, photos)
    data = encoder.open(photos)
    found = dict(zip(data.names, encoder.encode(data.fetch(torch.arange(len(data)))), strict=True))
    assert all(torch.equal(found[name], h) for name, h in expected.items())
    part = Evaluation(encoder, str(photos), protocols=["knn"]).splits.train
    for name, h in zip(part.names, encoder.encode(part.fetch(torch.arange(len(part)))), strict=True):
        assert torch.equal(h, expected[name])
    sample = encoder.modality.find(str(photos)).read("a/0.png")
    torch.testing.assert_close(encoder.encode(sample[None])[0], expected["a/0.png"])
    graph = nearfar.load(export(run, "onnx", run / "model.onnx").path)
    for name, h in embedded(graph, photos).items():
        torch.testing.assert_close(h, expected[name], atol=1e-4, rtol=1e-4)


def test_a_size_that_the_user_gives_comes_first(run: Path, photos: Path) -> None:
    assert nearfar.load(run).open(photos, size=20).size == 20
    reading = {"path": str(photos), "stored_size": 20}
    assert Evaluation(nearfar.load(run), reading, protocols=["knn"]).splits.train.size == 20


def test_glyphs_keep_their_size(run: Path) -> None:
    assert nearfar.load(run).open("glyphs:10").size == 32


@pytest.mark.parametrize("layout", ["uint8", "real numbers", "channels first", "16 bit", "Fortran order"])
def test_arrays_pictures_files_and_folders_are_the_same_pixels(
    run: Path, photos: Path, layout: str, tmp_path: Path
) -> None:
    encoder = nearfar.load(run)
    files = sorted(photos.rglob("*.png"))
    expected = torch.stack([embedded(encoder, photos)[str(file.relative_to(photos))] for file in files])
    pictures = [Image.open(file) for file in files]
    images = {
        "uint8": lambda x: x,
        "real numbers": lambda x: x / 255,
        "channels first": lambda x: x.transpose(0, 3, 1, 2),
        "16 bit": lambda x: x.astype(np.int16),
        "Fortran order": np.asfortranarray,
    }[layout](np.stack([np.asarray(each) for each in pictures]))
    assert torch.equal(encoder.encode(pictures), expected)
    assert torch.equal(encoder.encode(images), expected)
    assert torch.equal(encoder.encode(list(images)), expected)
    written = nearfar.embed(encoder, images, tmp_path / "x.npy", progress=False).path
    torch.testing.assert_close(torch.from_numpy(np.load(written)), expected)
    data = (images, np.arange(10) % 2)
    part = Evaluation(encoder, {"path": data, "test": data}, protocols=["knn"]).splits.train
    assert torch.equal(encoder.encode(part.fetch(torch.arange(10))), expected)
