"""What a table is of is found inside, whatever its name."""

from pathlib import Path

import pytest

from nearfar.config import TrainConfig, completed, kind_of

NUMBERS = "".join(f"{row % 2}," + ",".join(str(row * 0.1 + i) for i in range(20)) + "\n" for row in range(8))


@pytest.mark.parametrize(
    ("name", "content", "method", "kind"),
    [
        ("photos_train.csv", "path,label\na.jpg,cat\nb.jpg,dog\n", "simclr", "image"),
        ("sentences_test.csv", "text,label\na cat,0\na dog,1\n", "simcse", "text"),
        ("sentences_train.tsv", "sentence\tlabel\na cat\t0\n", "simclr", "text"),
        ("sentences.csv", "\ufefftext;label\na cat;0\n", "simclr", "text"),
        ("pairs_train.csv", "image,caption\na.jpg,a cat\n", "clip", "image-text"),
        ("ECG_TRAIN.csv", NUMBERS, "simclr", "series"),
        ("sensors.csv", "label," + ",".join(f"t{i}" for i in range(20)) + "\n" + NUMBERS, "simclr", "series"),
        ("header_train.csv", "path,label\n", "simclr", "image"),
    ],
)
def test_the_kind_of_a_table_is_found_inside(tmp_path: Path, name: str, content: str, method: str, kind: str) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    values = completed({"data": {"path": str(file)}, "method": method, "recipe": "paper"})
    assert kind_of(str(file), method, values.get("modality", TrainConfig.modality)) == kind
