"""Images in Parquet and in folders of `datasets`, as that library lays them out."""

import io
import json
from pathlib import Path

import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from nearfar.modalities.image.data.hugging_face import table_folder_splits
from nearfar.modalities.image.data.opening import open_images
from tests.support.facts import facts

FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
}


def table(count: int) -> pyarrow.Table:
    cells = []
    for number in range(count):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (10 * number, 0, 0)).save(file, "PNG")
        cells.append({"bytes": file.getvalue(), "path": f"{number}.png"})
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    return pyarrow.table({"image": pyarrow.array(cells, kind), "label": [number % 2 for number in range(count)]})


def test_parquet_of_the_hub_with_splits_by_file_names(tmp_path: Path) -> None:
    noted = {b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode()}
    for split, count in (("train", 9), ("test", 3)):
        file = tmp_path / "data" / f"{split}-00000-of-00001.parquet"
        file.parent.mkdir(exist_ok=True)
        parquet.write_table(table(count).replace_schema_metadata(noted), file, row_group_size=2)
    assert table_folder_splits(tmp_path) == ("train", "test")
    data = open_images(tmp_path, split="train", stored_size=8, progress=False)
    assert len(data) == 9 and data.classes == ["cat", "dog"]
    assert data.labels is not None and data.labels.tolist() == [number % 2 for number in range(9)]
    import torch

    assert data.fetch(torch.arange(9))[:, 0, 4, 4].tolist() == [10 * number for number in range(9)]
    assert len(open_images(tmp_path, stored_size=8, progress=False)) == 12
    with pytest.raises(ValueError, match=facts("'nonsense'")):
        open_images(tmp_path, split="nonsense", progress=False)


def test_folders_of_save_to_disk(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for split, count in (("train", 5), ("test", 2)):
        folder = tmp_path / split
        folder.mkdir()
        (folder / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
        (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
        rows = table(count)
        with pyarrow.ipc.new_stream(folder / "data-00000-of-00001.arrow", rows.schema) as writer:
            writer.write_table(rows)
    assert table_folder_splits(tmp_path) == ("train", "test")
    assert [len(open_images(tmp_path, split=s, progress=False)) for s in ("train", "test", None)] == [5, 2, 7]
    assert open_images(tmp_path / "test", progress=False).classes == ["cat", "dog"]
