"""The one door: names, paths, and one line for anything else."""

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nearfar.data.dataset import ArrayDataset, Dataset
from nearfar.modalities.image.data.glyphs import glyphs
from nearfar.modalities.image.data.opening import image_files, open_images
from nearfar.modalities.image.data.stream import StreamDataset
from tests.support.facts import facts


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("glyps", "'glyphs'"),
        ("cifar11", "'CIFAR10"),
        ("torchvision:CIFR10", "'CIFAR10'"),
        ("no/such/folder", "'glyphs' folder"),
    ],
)
def test_unknown_names_in_one_line(spec: str, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=facts(message)) as error:
        open_images(spec)
    assert "\n" not in str(error.value)


def write_mnist(root: Path, images: NDArray[np.generic], labels: NDArray[np.generic]) -> None:
    """MNIST's own files, small."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
            (raw / f"{part}-{kind}-ubyte").write_bytes(header + array.tobytes())
            (raw / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))


def test_torchvision_set_that_is_there(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28), np.uint8)
    write_mnist(tmp_path, images, np.array([3, 1, 4, 1, 5, 9], np.uint8))
    for spec in ("mnist", "torchvision:MNIST"):
        data = open_images(spec, root=tmp_path)
        assert data.size == 28 and data.labels is not None and data.labels.tolist() == [3, 1, 4, 1, 5, 9]
        assert data.classes is not None and data.classes[4].startswith("4")
        assert np.array_equal(data.fetch(torch.arange(6)).numpy(), np.stack([images] * 3, 1))
    packed = open_images("mnist", root=tmp_path, stored_size=14, cache=tmp_path / "cache", split="test", progress=False)
    assert packed.fetch(torch.tensor([0])).shape == (1, 3, 14, 14)
    with pytest.raises(ValueError, match=facts("split 'train' 'test' 'extra'")):
        open_images("mnist", root=tmp_path, split="extra")


def test_torchvision_set_of_pictures(tmp_path: Path) -> None:
    source = open_images("torchvision:FakeData", stored_size=16, stream=True)
    assert isinstance(source, StreamDataset)
    assert source.fetch(torch.tensor([0, 5])).shape == (2, 3, 16, 16)


def test_torchvision_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    with pytest.raises(RuntimeError, match=facts("CIFAR10 download network")) as error:
        open_images("cifar10", root=tmp_path)
    assert "\n" not in str(error.value)


def test_a_folder_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()
    with pytest.raises(ValueError, match=facts("image")):
        open_images("cifar10")


def test_glyphs_are_kept_and_mended(tmp_path: Path) -> None:
    drawn = glyphs(50, seed=1)
    for damage in (False, False, True):
        if damage:
            stored = next((tmp_path / "glyphs").glob("*.npy"))
            stored.write_bytes(stored.read_bytes()[:-1] + b"\0")
        kept = open_images("glyphs:50", seed=1, cache=tmp_path)
        assert isinstance(kept, ArrayDataset)
        assert np.array_equal(kept.images, drawn.images) and kept.captions == drawn.captions
    with pytest.raises(ValueError, match=facts("glyphs 32")):
        open_images("glyphs", stored_size=64, cache=tmp_path)


def test_all_are_datasets(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 4, 4), np.uint8))
    kinds: list[Dataset] = [
        glyphs(2, seed=0),
        open_images(tmp_path / "a.npy"),
        StreamDataset(image_files(tmp_path / "a.npy"), 4),
    ]
    for data in kinds:
        assert isinstance(data, Dataset)
        assert data.fetch(torch.tensor([0])).dtype == torch.uint8


def test_subset_keeps_what_belongs_to_a_sample() -> None:
    data = glyphs(20, seed=0)
    part = data.subset(torch.tensor([3, 17])).subset(torch.tensor([1]))
    assert data.labels is not None and part.labels is not None and data.captions is not None
    assert torch.equal(part.fetch(torch.tensor([0])), data.fetch(torch.tensor([17])))
    assert part.labels.tolist() == [data.labels[17]] and part.captions == [data.captions[17]] and part.names == ["17"]


@pytest.mark.parametrize(
    ("images", "arguments", "message"),
    [
        (np.zeros((2, 4, 5, 3), np.uint8), {}, "(2, 4, 5, 3) uint8 (N, S, S, 3)"),
        (np.zeros((2, 4, 4, 3), np.float32), {}, "float32"),
        (np.zeros((2, 4, 4, 3), np.uint8), {"labels": [1]}, "(2,) integers"),
        (np.zeros((2, 4, 4, 3), np.uint8), {"names": ["a"]}, "1 names for 2 samples"),
        (np.zeros((2, 4, 4, 3), np.uint8), {"captions": ["a cat", "a dog"]}, "'a cat' caption"),
        (np.zeros((2, 4, 4, 3), np.uint8), {"captions": [("a cat",), ()]}, "() caption"),
    ],
)
def test_array_dataset_refuses_in_one_line(
    images: NDArray[np.generic], arguments: dict[str, list[int]], message: str
) -> None:
    with pytest.raises(ValueError, match=facts(message)):
        ArrayDataset(images, **arguments)  # type: ignore[arg-type]


def test_import_is_light() -> None:
    heavy = "{'torchvision', 'pyarrow', 'matplotlib', 'lightning', 'timm'}"
    code = f"import sys, nearfar.data; assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
