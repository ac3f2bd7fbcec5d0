"""What the end of a run measures of the data, for the advice on what to try next."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nearfar.config import TrainConfig
from nearfar.data.dataset import ArrayDataset
from nearfar.modalities import make_modality
from nearfar.training.final_evaluation import copied_share


def test_copies_are_counted_value_for_value() -> None:
    images = np.random.default_rng(0).integers(0, 256, (10, 4, 4, 3), dtype=np.uint8)
    assert copied_share(ArrayDataset(images)) == 0
    images[7:] = images[0]
    assert copied_share(ArrayDataset(images)) == pytest.approx(0.3)


def test_the_side_of_images_is_that_on_disk(tmp_path: Path) -> None:
    for number, size in enumerate([(100, 300), (120, 90), (400, 200)]):
        Image.new("RGB", size).save(tmp_path / f"{number}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    config = TrainConfig(data=str(tmp_path), modality="image", backbone="micro")  # type: ignore[arg-type]
    assert make_modality(config).native_side() == 100
    glyphs = TrainConfig(data="glyphs:20", modality="image", backbone="micro")  # type: ignore[arg-type]
    assert make_modality(glyphs).native_side() is None
