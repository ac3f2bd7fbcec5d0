"""Copies are found in sets of any size, and no others."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import ImageDraw

import nearfar
from nearfar.doctor import examine
from nearfar.doctor.crops import align
from nearfar.modalities.image.data.opening import find_images
from tests.search.pictures import folder_of, scene


@pytest.mark.parametrize("count", [6, 28, 60])
def test_planted_copies_are_found_and_no_others(tmp_path: Path, count: int) -> None:
    data = folder_of(tmp_path, count)
    file = io.BytesIO()
    scene(0, 96).save(file, "JPEG", quality=60)
    (data / "class0" / "encoded.jpg").write_bytes(file.getvalue())
    scene(1, 96).resize((70, 70)).save(data / "class0" / "resized.png")
    marked = scene(2, 96)
    ImageDraw.Draw(marked).text((50, 80), "photo", fill="white")
    marked.save(data / "class0" / "marked.png")
    found = examine(find_images(data), progress=False)
    groups: dict[int, set[str]] = {}
    for name, group in zip(found.names, found.groups.tolist(), strict=True):
        groups.setdefault(group, set()).add(Path(name).stem)
    copies = {frozenset(names) for names in groups.values() if len(names) > 1}
    assert copies == {frozenset({"0000", "encoded"}), frozenset({"0001", "resized"}), frozenset({"0002", "marked"})}


@pytest.mark.parametrize("box", [(3, 3, 125, 125), (6, 6, 122, 122), (0, 4, 116, 128), (10, 2, 127, 120)])
def test_a_part_of_a_picture_is_a_copy_of_it(tmp_path: Path, box: tuple[int, int, int, int]) -> None:
    for number in range(12):
        scene(number, 128).save(tmp_path / f"{number}.png")
    scene(3, 128).crop(box).save(tmp_path / "part.jpg")
    (group,) = nearfar.doctor(tmp_path, progress=False).groups
    assert group == ["3.png", "part.jpg"]


def test_alignment_finds_where_a_part_is() -> None:
    whole = torch.from_numpy(np.array(scene(1, 200))).permute(2, 0, 1)[None].float()
    part = whole[:, :, 20:190, 10:180]  # 170 of 200 pixels; its middle is 5 to the left, 5 below
    wholes, parts = (F.interpolate(each, (48, 48), mode="area") for each in (whole, part))
    cosine, place = align(wholes, parts, torch.zeros(1, 4), steps=8)
    assert float(cosine) > 0.99
    torch.testing.assert_close(place, torch.tensor([[-0.15, -0.05, -0.15, 0.05]]), atol=0.01, rtol=0)
    before = F.cosine_similarity(*((each - each.mean((2, 3), keepdim=True)).flatten(1) for each in (wholes, parts)))
    assert float(cosine) > float(before) + 0.01
