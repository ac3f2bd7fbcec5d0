"""Frames and data sets of the real libraries, where they are installed: read as `train`, `embed` and `encode` do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import nearfar
from nearfar.data.python_data import as_data
from nearfar.model.encoder import Encoder
from nearfar.python_objects import released_afterwards
from tests.support.facts import facts
from tests.support.untrained import untrained_run

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 24, 24, 3), np.uint8)
NAMES = ["cat", "dog"] * 6


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return nearfar.load(untrained_run(tmp_path_factory.mktemp("run"), image_size=16))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    for row, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(folder / f"{row}.png")
    return [str(folder / f"{row}.png") for row in range(12)]


def check(encoder: Encoder, data: Any, labels: list[str] | None) -> None:
    """The embeddings and labels of the pictures."""
    torch.testing.assert_close(encoder.encode(data), encoder.encode(PIXELS))
    with released_afterwards():
        opened = encoder.open(as_data(data).path)
        found = None if opened.labels is None or opened.classes is None else [opened.classes[n] for n in opened.labels]
    assert found == labels and len(opened) == 12


@pytest.mark.parametrize("form", ["frame", "index", "category", "column"])
def test_pandas(encoder: Encoder, paths: list[str], form: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"path": paths, "label": NAMES})
    forms = {"frame": frame, "index": frame.set_index(frame.index + 7), "column": frame["path"]}
    check(encoder, forms.get(form, frame.astype({"label": "category"})), None if form == "column" else NAMES)
    with pytest.raises(ValueError, match=facts("DataFrame rows")):
        encoder.encode(frame[:0])
    with pytest.raises(ValueError, match=facts("row 0 'path'")):
        encoder.encode(frame.assign(path=[None, *paths[1:]]))


@pytest.mark.parametrize("form", ["frame", "lazy", "column"])
def test_polars(encoder: Encoder, paths: list[str], form: str) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"path": paths, "label": NAMES})
    forms = {"frame": frame, "lazy": frame.lazy(), "column": frame["path"]}
    check(encoder, forms[form], None if form == "column" else NAMES)
    with pytest.raises(ValueError, match=facts("DataFrame rows")):
        as_data(frame[:0])


def test_hugging_face(encoder: Encoder, paths: list[str]) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    data = datasets.Dataset.from_dict({"image": paths, "label": [0, 1] * 6}, features=features)
    check(encoder, data, NAMES)
    for other in (data.to_iterable_dataset(), data.with_format("torch"), data.with_format("numpy")):
        torch.testing.assert_close(encoder.encode(other), encoder.encode(PIXELS))
    with pytest.raises(ValueError, match=facts("Dataset items")):
        encoder.encode(data.select([]))
    with pytest.raises(TypeError, match=facts("DatasetDict 'train'")):
        encoder.encode(datasets.DatasetDict({"train": data}))


def test_torch(encoder: Encoder, tmp_path: Path) -> None:
    images = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).contiguous()
    data = torch.utils.data.TensorDataset(images, torch.arange(12) % 2)
    expected = encoder.encode(PIXELS)
    for loader in (data, torch.utils.data.DataLoader(data, batch_size=5)):
        torch.testing.assert_close(encoder.encode(loader), expected)
    torch.testing.assert_close(encoder.encode([{"image": each} for each in PIXELS]), expected)
    torch.testing.assert_close(encoder.encode([(each, 1) for each in PIXELS]), expected)

    def early() -> Any:
        yield PIXELS[0]
        raise RuntimeError("disk\nfull")

    with pytest.raises(ValueError, match=facts("1 disk full")) as error:
        encoder.encode(early)
    assert "\n" not in str(error.value)
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    mixed = [tmp_path / "a.png", Image.fromarray(PIXELS[1]), PIXELS[2]]
    written = nearfar.embed(encoder, mixed, tmp_path / "x.npy", progress=False)
    torch.testing.assert_close(torch.from_numpy(np.load(written.path)), expected[:3])
    with pytest.raises(ValueError, match=facts("(0, 24, 24, 3)")):
        nearfar.embed(encoder, PIXELS[:0], tmp_path / "y.npy", progress=False)
