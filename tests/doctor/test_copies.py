"""Copies are found in sets of any size, and no others."""

import io
from pathlib import Path

import pytest
from PIL import ImageDraw

from nearfar.doctor import examine
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
