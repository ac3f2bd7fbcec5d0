"""`Encoder.encode` takes what people have, and gives the same embeddings whatever the form."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import nearfar
from nearfar.model.encoder import Encoder
from tests.data.test_python_data import Column, PandasLike
from tests.support.facts import facts
from tests.support.models import save_untrained_of
from tests.support.untrained import untrained_run

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 40, 40, 3), np.uint8)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return nearfar.load(untrained_run(tmp_path_factory.mktemp("run"), image_size=16))


class Pictures(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, row: int) -> tuple[Image.Image, int]:
        return Image.fromarray(PIXELS[row]), row


def test_every_form_of_images_has_the_same_embeddings(encoder: Encoder, tmp_path: Path) -> None:
    paths = [tmp_path / f"{row}.png" for row in range(5)]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels).save(path)
    expected = encoder.encode(list(map(Image.fromarray, PIXELS)))
    assert expected.shape == (5, encoder.num_features)
    frame = PandasLike({"id": list(range(5)), "path": list(map(str, paths))}, Column)
    forms = [PIXELS, list(PIXELS), paths, tuple(map(str, paths)), frame, Pictures(), tmp_path]
    for items in [*forms, lambda: (Image.fromarray(pixels) for pixels in PIXELS)]:
        torch.testing.assert_close(encoder.encode(items, batch_size=2), expected)


def test_a_single_item_has_one_embedding(encoder: Encoder, tmp_path: Path) -> None:
    Image.fromarray(PIXELS[1]).save(tmp_path / "one.png")
    expected = encoder.encode(PIXELS)[1]
    one = tmp_path / "one.png"
    for item in (one, str(one), one.read_bytes(), BytesIO(one.read_bytes()), Image.fromarray(PIXELS[1]), PIXELS[1]):
        torch.testing.assert_close(encoder.encode(item), expected)


def test_an_item_that_fails_is_named(encoder: Encoder) -> None:
    class Broken(Pictures):
        def __getitem__(self, row: int) -> Any:
            if row == 3:
                raise RuntimeError("the disk is gone")
            return super().__getitem__(row)

    with pytest.raises(ValueError, match=facts("item 3 disk")):
        encoder.encode(Broken(), batch_size=2)


def test_numpy_is_an_array(encoder: Encoder) -> None:
    found = encoder.encode(PIXELS, numpy=True)
    assert isinstance(found, np.ndarray) and np.array_equal(found, encoder.encode(PIXELS).numpy())


def test_texts_of_frames_and_single_texts(tmp_path: Path) -> None:
    encoder = nearfar.load(save_untrained_of("text", tmp_path))
    texts = ["a cat sat", "a dog ran"]
    expected = encoder.encode(texts)
    assert torch.equal(encoder.encode(PandasLike({"n": [1, 2], "sentence": list(texts)}, Column)), expected)
    torch.testing.assert_close(encoder.encode(texts[1]), expected[1])
    with pytest.raises(ValueError, match=facts("columns n")):
        encoder.encode(PandasLike({"n": [1, 2]}, Column))
