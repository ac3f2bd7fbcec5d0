"""Python objects as data: every usual form opens as the same samples, and what is no image is refused with a reason."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from nearfar.data.dataset import Dataset as OpenedDataset
from nearfar.data.python_data import as_data
from nearfar.modalities.image.data.opening import open_images
from nearfar.modalities.image.data.python_images import brightness_scale
from nearfar.modalities.series.data import open_series
from nearfar.modalities.text.data import open_texts
from nearfar.python_objects import MissingObjectError, is_object, release
from nearfar.training.python_inputs import data_section, data_settings
from nearfar.training.signals import how_to_continue
from tests.support.facts import facts

PIXELS: NDArray[np.uint8] = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), np.uint8)
NUMBERS = [0, 1, 2, 0, 1, 2]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))


class Items(Dataset[Any]):
    """A map-style data set whose items have any form."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, row: int) -> Any:
        return self.make(row)


def picture(row: int) -> Image.Image:
    return Image.fromarray(PIXELS[row])


def tensor(row: int) -> torch.Tensor:
    """As ToTensor makes it."""
    return torch.from_numpy(PIXELS[row]).permute(2, 0, 1) / 255


def generated() -> Iterator[Any]:
    return ((picture(row), NUMBERS[row]) for row in range(6))


CHANNELS_FIRST = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
LABELLED = {
    "array and labels": (PIXELS, np.array(NUMBERS)),
    "tensor and labels": (CHANNELS_FIRST, torch.tensor(NUMBERS)),
    "list and labels": ([picture(row) for row in range(6)], NUMBERS),
    "list of tuples": [(PIXELS[row], NUMBERS[row]) for row in range(6)],
    "tuples": Items(lambda row: (picture(row), NUMBERS[row])),
    "tuples of tensors": Items(lambda row: (tensor(row), torch.tensor(NUMBERS[row]))),
    "dicts": Items(lambda row: {"image": picture(row), "label": NUMBERS[row], "id": row}),
    "dicts of arrays": Items(lambda row: {"img": PIXELS[row], "fine_label": np.int64(NUMBERS[row])}),
    "TensorDataset": TensorDataset(CHANNELS_FIRST / 255, torch.tensor(NUMBERS)),
    "Subset": Subset(Items(lambda row: (picture(row), NUMBERS[row])), range(6)),
    "DataLoader": DataLoader(Items(lambda row: (picture(row), NUMBERS[row])), batch_size=2),
    "generator factory": generated,
}
UNLABELLED = {
    "array": PIXELS,
    "array in [0, 1]": PIXELS / 255,
    "array to 255": PIXELS.astype(np.float32),
    "whole numbers": PIXELS.astype(np.int64),
    "tensor": CHANNELS_FIRST,
    "pictures": [picture(row) for row in range(6)],
    "arrays": list(PIXELS),
    "images alone": Items(picture),
}


def opened(data: Any) -> OpenedDataset:
    return open_images(as_data(data).path, stored_size=16)


@pytest.mark.parametrize("form", [*LABELLED, *UNLABELLED])
def test_every_form_opens_as_the_same_samples(form: str) -> None:
    found = opened((LABELLED | UNLABELLED)[form])
    assert torch.equal(found.fetch(torch.arange(6)), CHANNELS_FIRST)
    assert (found.labels is None) == (form in UNLABELLED)
    if found.labels is not None:
        assert found.labels.tolist() == NUMBERS and found.classes == ["0", "1", "2"]


def test_the_same_object_keeps_its_name_and_another_one_gets_its_own() -> None:
    one, other = PIXELS.copy(), PIXELS[::-1].copy()
    first, again, second = as_data(one), as_data(one), as_data(other)
    assert first == again and second.path != first.path
    assert torch.equal(open_images(second.path).fetch(torch.arange(6)), CHANNELS_FIRST.flip(0))


def test_a_released_object_is_asked_for() -> None:
    spec = as_data(PIXELS.copy()).path
    assert is_object(spec)
    release(spec)
    with pytest.raises(MissingObjectError, match=facts(f"{spec} data=")):
        open_images(spec)


def test_names_of_classes_are_taken_from_the_data_set() -> None:
    data = Items(lambda row: (picture(row), NUMBERS[row]))
    data.targets, data.classes = NUMBERS, ["cat", "dog", "owl"]  # type: ignore[attr-defined]
    found = opened(data)
    assert found.classes == ["cat", "dog", "owl"] and found.labels is not None and found.labels.tolist() == NUMBERS


def test_texts_of_items_are_labels_if_they_repeat_and_captions_if_not() -> None:
    kinds = opened(Items(lambda row: (picture(row), "cat" if row % 2 else "dog")))
    assert kinds.classes == ["cat", "dog"]
    told = opened(Items(lambda row: {"image": picture(row), "caption": f"picture {row}"}))
    assert told.labels is None and told.captions is not None and told.captions[3] == ("picture 3",)
    pairs = opened(Items(lambda row: (picture(row), f"picture {row}")))
    assert pairs.labels is None and pairs.captions is not None and pairs.captions[3] == ("picture 3",)


def test_normalized_images_are_refused_with_the_way_out() -> None:
    normalized = Items(lambda row: ((tensor(row) - 0.5) / 0.2, 0))
    with pytest.raises(ValueError, match=facts("Normalize python:Items-6")):
        opened(normalized)
    with pytest.raises(ValueError, match=facts("Normalize array")):
        opened(PIXELS / 255 - 0.5)


def test_real_numbers_a_little_above_one_are_no_brightness() -> None:
    images = np.linspace(0, 5, 4 * 8 * 8 * 3).reshape(4, 8, 8, 3)
    with pytest.raises(ValueError, match="from 0 to 5"):
        brightness_scale(list(images), "array")
    assert brightness_scale(list(images * 40), "array") == 1.0 and brightness_scale(list(images / 5), "array") == 255.0
    assert brightness_scale(list(images.round()), "array") == 1.0  # whole numbers are what they are


def test_a_run_of_objects_is_continued_from_python(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("data:\n  path: python:array-60\n")
    assert "nearfar.train(" in how_to_continue(tmp_path) and "--resume" not in how_to_continue(tmp_path)
    (tmp_path / "config.yaml").write_text("data:\n  path: photos\n")
    assert "nearfar train --resume" in how_to_continue(tmp_path)


def test_what_is_no_image_is_named() -> None:
    with pytest.raises(TypeError, match=facts("object image")):
        opened(Items(lambda row: (object(), 0)))
    with pytest.raises(ValueError, match=facts("'left' 'right' image")):
        opened(Items(lambda row: {"left": 0, "right": 1}))
    with pytest.raises(TypeError, match=facts("int Dataset")):
        as_data(3)
    with pytest.raises(ValueError, match=facts("list items")):
        as_data([])


@pytest.mark.parametrize("labels", [[1, 2, 3], np.eye(6)])
def test_labels_of_another_shape_are_told(labels: Any) -> None:
    for samples in (PIXELS, list(PIXELS), ["a.jpg"] * 6):
        with pytest.raises(ValueError, match=facts(f"labels {np.asarray(labels).shape[0]} 6")):
            as_data((samples, labels))
    two = [(picture(0), 0), (picture(1), 1)]
    assert len(opened(tuple(two))) == len(opened((PIXELS[0, ..., 0], PIXELS[1, ..., 0]))) == 2  # not labels


def test_columns_by_name_are_samples_and_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=PIXELS, labels=NUMBERS)
    for columns in (np.load(tmp_path / "x.npz"), {"image": PIXELS, "label": NUMBERS}, {"x": PIXELS, "y": NUMBERS}):
        section = data_section(columns)
        assert opened(section.pop("path")).classes == ["0", "1", "2"] and not section
    assert data_section({"image": PIXELS}) == {"path": PIXELS}
    for settings in ({"path": "photos/", "labels": "leaf"}, {"path": PIXELS}, {"path": PIXELS, "strict": True}):
        assert data_section(settings) == settings


def test_a_sample_that_fails_is_skipped_and_listed_or_an_error() -> None:
    def broken(row: int) -> Image.Image:
        if row == 4:
            raise RuntimeError("no such picture")
        return picture(row)

    data = Items(broken)
    found = opened(data)
    assert len(found) == 5 and [each.path for each in found.skipped] == ["4"]
    assert torch.equal(found.fetch(torch.tensor([4])), CHANNELS_FIRST[[5]])
    with pytest.raises(ValueError, match=facts("RuntimeError picture 4")):
        open_images(as_data(data).path, stored_size=16, strict=True)


def test_a_labelled_sample_that_fails_is_skipped_also_if_it_is_the_first() -> None:
    def broken(row: int) -> tuple[Image.Image, int]:
        if row in (0, 4):
            raise RuntimeError("no such picture")
        return picture(row), NUMBERS[row]

    found = opened(Items(broken))
    assert [each.path for each in found.skipped] == ["0", "4"] and found.labels is not None
    assert found.labels.tolist() == [NUMBERS[row] for row in (1, 2, 3, 5)]

    def all_broken(row: int) -> tuple[Image.Image, int]:
        raise RuntimeError(f"no picture {row}")

    with pytest.raises(ValueError, match=facts("item 0 Items 5 picture")):
        as_data(Items(all_broken))


def test_a_series_that_fails_is_named() -> None:
    def broken(row: int) -> tuple[Any, int]:
        if row == 4:
            raise RuntimeError("the sensor is gone")
        return np.arange(20.0), NUMBERS[row]

    with pytest.raises(ValueError, match=facts("item 4 Items sensor")):
        open_series(as_data(Items(broken)).path)


@pytest.mark.parametrize("bits", [12, 16])
def test_arrays_of_16_bits_are_read_as_files_of_them(bits: int, tmp_path: Path) -> None:
    wide = np.random.default_rng(0).integers(0, 1 << bits, (5, 16, 16)).astype(np.uint16)
    for row in range(5):
        Image.fromarray(wide[row]).save(tmp_path / f"{row}.png")
    expected = open_images(str(tmp_path), stored_size=16).fetch(torch.arange(5))
    for form in (wide, wide.astype(np.int64), torch.from_numpy(wide), list(wide), wide[..., None]):
        assert torch.equal(opened(form).fetch(torch.arange(5)), expected)
    with pytest.raises(ValueError, match=facts("7e+04 16")):
        opened(np.full((5, 16, 16), 70000))


# Lists and frames of paths or texts


def files(folder: Path) -> list[Path]:
    paths = []
    for row in range(6):
        path = folder / ("cat" if NUMBERS[row] else "dog") / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(row).save(path)
        paths.append(path)
    return paths


class Column:
    """A column of polars, which has `to_list` and no `tolist`."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def to_list(self) -> list[Any]:
        return self.values


class PandasLike:
    """What is used of a frame of pandas or polars."""

    def __init__(self, columns: dict[str, list[Any]], wrap: Any) -> None:
        self._columns, self._wrap = columns, wrap
        self.columns, self.shape = list(columns), (len(next(iter(columns.values()))), len(columns))

    def __getitem__(self, name: str) -> Any:
        return self._wrap(self._columns[name])

    def __len__(self) -> int:
        return self.shape[0]


class Feature:
    def __init__(self, names: list[str] | None = None) -> None:
        self.names = names


class HuggingFaceLike:
    """What is used of `datasets.Dataset`."""

    def __init__(self, columns: dict[str, list[Any]], features: dict[str, Feature]) -> None:
        self._columns, self.column_names, self.features = columns, list(columns), features

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: column[key] for name, column in self._columns.items()}


def frames(paths: list[Path]) -> dict[str, Any]:
    from torchvision.datasets import ImageFolder

    names = ["cat" if number else "dog" for number in NUMBERS]
    columns: dict[str, list[Any]] = {"path": list(map(str, paths)), "label": list(names)}
    numbers = {"path": columns["path"], "label": [(name == "dog" and 1) or 0 for name in names]}
    return {
        "list and labels": (paths, names),
        "pandas": PandasLike(columns, np.array),
        "polars": PandasLike(columns, Column),
        "Hugging Face": HuggingFaceLike(numbers, {"path": Feature(), "label": Feature(["cat", "dog"])}),
        "ImageFolder": ImageFolder(str(paths[0].parents[1])),
        "items": Items(lambda row: (str(paths[row]), names[row])),
    }


@pytest.mark.parametrize("form", ["list and labels", "pandas", "polars", "Hugging Face", "ImageFolder", "items"])
def test_frames_of_paths_are_a_table_that_any_process_opens(form: str, tmp_path: Path) -> None:
    pytest.importorskip("nearfar._torchvision")
    paths = files(tmp_path / "photos")
    settings = data_settings(frames(paths)[form], {})
    section = settings["data"]
    assert Path(section["path"]).suffix == ".parquet" and settings["modality"] == "image"
    found = open_images(section["path"], root=section["root"], stored_size=16)
    rows = torch.tensor([int(Path(name).stem) for name in found.names])
    assert sorted(rows.tolist()) == list(range(6))
    assert torch.equal(found.fetch(torch.arange(6)), CHANNELS_FIRST[rows])
    assert found.classes == ["cat", "dog"] and found.labels is not None
    assert found.labels.tolist() == [0 if NUMBERS[row] else 1 for row in rows.tolist()]
    assert section["path"] == data_settings(frames(paths)[form], {})["data"]["path"]  # its contents name the file


def test_a_list_of_paths_alone_has_short_names_and_no_labels(tmp_path: Path) -> None:
    paths = files(tmp_path / "photos")
    section = data_settings(list(map(str, paths)), {})["data"]
    found = open_images(section["path"], root=section["root"])
    assert found.labels is None and found.names[1] == "cat/1.png"


def test_mistyped_paths_are_files_and_not_sentences(tmp_path: Path) -> None:
    settings = data_settings([str(tmp_path / "a.jpg"), str(tmp_path / "b.jpg")], {})
    assert settings["modality"] == "image"
    with pytest.raises(ValueError, match=facts("none a.jpg")):
        open_images(settings["data"]["path"], root=settings["data"]["root"])


def test_lists_and_frames_of_texts_are_sentences() -> None:
    texts = ["a cat sat", "a dog ran", "an owl"]
    for data in (texts, PandasLike({"sentence": list(texts)}, Column), Items(lambda row: texts[row % 3])):
        settings = data_settings(data, {})
        assert settings["modality"] == "text"
        assert open_texts(settings["data"]["path"]).texts[:3] == texts
    labelled = data_settings((texts, ["pet", "pet", "bird"]), {})
    assert open_texts(labelled["data"]["path"]).classes == ["bird", "pet"]


def test_pictures_of_hugging_face_stay_in_memory_with_the_names_of_their_classes() -> None:
    columns = {"image": [picture(row) for row in range(6)], "label": list(NUMBERS)}
    found = opened(HuggingFaceLike(columns, {"image": Feature(), "label": Feature(["cat", "dog", "owl"])}))
    assert found.classes == ["cat", "dog", "owl"] and torch.equal(found.fetch(torch.arange(6)), CHANNELS_FIRST)


def test_splits_are_data_and_test() -> None:
    settings = data_settings({"train": PIXELS, "validation": PIXELS[:3]}, {})
    assert is_object(settings["data"]["path"]) and is_object(settings["data"]["test"])
    assert len(open_images(settings["data"]["test"])) == 3
