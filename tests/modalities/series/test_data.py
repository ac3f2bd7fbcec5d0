"""Series from every kind of file: values, labels, ends, what is missing, and what is broken."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar.data.dataset import Dataset
from nearfar.data.fingerprint import fingerprint
from nearfar.data.python_data import as_data
from nearfar.modalities.series.data import SeriesDataset, has_series_splits, open_series
from nearfar.modalities.series.files import filled
from nearfar.modalities.series.waves import SHAPES, waves
from tests.support.facts import all_tell, facts, lists

NAN = float("nan")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def rows(data: SeriesDataset) -> list[list[list[float | None]]]:
    return [[[None if v != v else v for v in channel] for channel in series] for series in data.values.tolist()]


def test_ucr_files_have_label_and_values(tmp_path: Path) -> None:
    path = write(tmp_path / "Toy_TRAIN.tsv", "-1\t0.5\t1.5\t2\n1\t3\t4\t5\n-1\t6\t7\tNaN\n")
    data = open_series(path)
    assert rows(data) == [[[0.5, 1.5, 2.0]], [[3.0, 4.0, 5.0]], [[6.0, 7.0, None]]]
    assert data.labels is not None and data.labels.tolist() == [0, 1, 0] and data.classes == ["-1", "1"]
    assert isinstance(data, Dataset) and data.size == 3 and data.channels == 1


def test_labels_written_as_floats_are_the_same_classes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "1.0000000e+00,0,1\n10,2,3\n2.0,4,5\n")
    assert open_series(path).classes == ["1", "2", "10"]
    test = open_series(write(tmp_path / "b.csv", "2,0,1\n"), classes=["1", "2", "10"])
    assert test.labels is not None and test.labels.tolist() == [1]


def test_uea_files_have_channels_unequal_lengths_and_missing_values(tmp_path: Path) -> None:
    text = (
        "# a comment\n@problemName Toy\n@timeStamps false\n@univariate false\n@classLabel true walk run\n@data\n"
        "1,2,3:4,5,6:walk\n1,?,3,4:5,6,7,8:run\n1,2:3,4:walk\n"
    )
    data = open_series(write(tmp_path / "toy.ts", text))
    assert rows(data) == [
        [[1.0, 2.0, 3.0, None], [4.0, 5.0, 6.0, None]],
        [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]],
        [[1.0, 2.0, None, None], [3.0, 4.0, None, None]],
    ]
    assert data.labels is not None and data.labels.tolist() == [1, 0, 1] and data.classes == ["run", "walk"]


def test_arrays(tmp_path: Path) -> None:
    x = np.array([[[1.0, 2.0], [3.0, 4.0]], [[5.0, NAN], [7.0, NAN]]])
    np.savez(tmp_path / "a.npz", x=x, y=np.array(["up", "down"]))
    data = open_series(tmp_path / "a.npz")
    assert rows(data) == [[[1.0, 2.0], [3.0, 4.0]], [[5.0, None], [7.0, None]]] and data.classes == ["down", "up"]
    np.savez(tmp_path / "b.npz", x=np.arange(6).reshape(2, 3))
    assert open_series(tmp_path / "b.npz").values.shape == (2, 1, 3) and open_series(tmp_path / "b.npz").labels is None


def test_a_wide_table_has_a_row_for_each_series(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "label,t0,t1,group\nup,1,2,a\ndown,3,,b\nup,5,6,a\n")
    data = open_series(path)
    assert rows(data) == [[[1.0, 2.0]], [[3.0, None]], [[5.0, 6.0]]]
    assert data.groups is not None and data.groups.tolist() == [0, 1, 0]


def test_a_long_table_has_a_row_for_each_step(tmp_path: Path) -> None:
    text = "series,time,x,y,label\na,1,10,1,up\nb,0,5,2,down\na,0,9,,up\na,2,11,3,up\nb,1,6,2,down\n"
    data = open_series(write(tmp_path / "a.csv", text))
    assert data.names == ["a", "b"] and data.labels is not None and data.labels.tolist() == [1, 0]
    assert rows(data) == [[[9.0, 10.0, 11.0], [1.0, 1.0, 3.0]], [[5.0, 6.0, None], [2.0, 2.0, None]]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[NAN, 2.0, NAN, NAN, 8.0, NAN]], [[2.0, 2.0, 4.0, 6.0, 8.0]]),
        ([[1.0, NAN, 3.0], [NAN, NAN, NAN]], [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]),
        ([[1.0, NAN, NAN], [1.0, 2.0, NAN]], [[1.0, 1.0], [1.0, 2.0]]),
    ],
)
def test_what_is_missing_is_filled(values: list[list[float]], expected: list[list[float]]) -> None:
    assert filled(np.array(values)).tolist() == expected


def test_broken_rows_are_skipped_and_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "1\t0\t1\n2\tabc\t1\n1\tnan\tnan\n2\tinf\t0\n\n1\t5\t6\n2\t1e300\t1\n")
    data = open_series(path)
    assert len(data) == 2 and data.names == ["row 1", "row 6"]
    expected = [("row 2", "'abc'"), ("row 3", "values"), ("row 4", "infinite"), ("row 7", "infinite")]
    assert lists(data.skipped, expected)
    with pytest.raises(ValueError, match=facts("row 2 'abc'")):
        open_series(path, strict=True)
    other = write(tmp_path / "a.ts", "@classLabel false\n@data\n1,2:3,4\n1,2\n")
    assert all_tell((s.reason for s in open_series(other).skipped), ["1 channel 2"])
    mixed = write(tmp_path / "b.csv", "series,time,x,label\na,0,1,up\na,0,2,up\nb,0,1,up\nb,1,2,down\nc,0,1,up\n")
    assert [s.path for s in open_series(mixed).skipped] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.tsv", "", "no"),
        ("a.ts", "@problemName x\n1,2:a\n", "@data"),
        ("a.ts", "@problemName x\n", "@data"),
        ("a.ts", "@timeStamps true\n@data\n", "time stamps"),
        ("a.npz", "zip", ".npz"),
        ("a.txt", "1 2", "series"),
        ("a.csv", "label,group\n1,2\n", "column values"),
    ],
)
def test_a_broken_file_is_told_in_a_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=facts(words)) as told:
        open_series(write(tmp_path / name, text))
    assert "\n" not in str(told.value)


def test_arrays_of_another_kind_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2, 2, 2)))
    np.savez(tmp_path / "b.npz", x=np.zeros((3, 4)), y=np.zeros(2))
    np.savez(tmp_path / "c.npz", other=np.zeros((3, 4)))
    for name, words in (("a", "numbers"), ("b", "each"), ("c", "'other'")):
        with pytest.raises(ValueError, match=facts(words)):
            open_series(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError, match=facts("'waves'")):
        open_series("wave")


def test_official_splits_lie_side_by_side(tmp_path: Path) -> None:
    train = write(tmp_path / "Toy_TRAIN.tsv", "1\t0\t1\n2\t1\t0\n")
    assert not has_series_splits(train)
    write(tmp_path / "Toy_TEST.tsv", "1\t0\t1\t2\n")
    assert has_series_splits(train) and has_series_splits(tmp_path) and has_series_splits("waves:9")
    assert not has_series_splits(tmp_path / "Toy_TEST.tsv")
    assert (
        len(open_series(train)) == len(open_series(tmp_path, split="train")) == len(open_series(train, split="train"))
    )
    assert len(open_series(train, split="test")) == len(open_series(tmp_path, split="test")) == 1
    with pytest.raises(ValueError, match=facts("split 'val'")):
        open_series(train, split="val")
    write(tmp_path / "Other_TRAIN.tsv", "1\t0\t1\n")
    with pytest.raises(ValueError, match=facts("2 NAME_TRAIN")):
        open_series(tmp_path, split="train")


def test_subsets_keep_what_belongs_together() -> None:
    data = waves(30)
    part = data.subset(torch.tensor([4, 2]))
    assert torch.equal(part.values, data.values[[4, 2]]) and part.names == ["4", "2"]
    assert data.labels is not None and part.labels is not None and part.labels.tolist() == data.labels[[4, 2]].tolist()
    assert fingerprint(part) != fingerprint(data)


def test_waves_are_the_same_every_time() -> None:
    few, many = waves(10), waves(1500)
    assert torch.equal(few.values, many.values[:10])
    assert not torch.equal(few.values, waves(10, seed=1).values)
    assert not torch.equal(few.values, waves(10, split="test").values)
    assert many.labels is not None and (many.labels.bincount(minlength=10) > 100).all() and many.values.isfinite().all()


def test_euclid_knows_little_of_waves() -> None:
    train, test = waves(1000), waves(300, split="test")
    a, b = (
        (d.values[:, 0] - d.values[:, 0].mean(1, True)) / d.values[:, 0].std(1, keepdim=True) for d in (train, test)
    )
    assert train.labels is not None and test.labels is not None
    right = train.labels[torch.cdist(b, a).argmin(1)] == test.labels
    assert 0.1 < right.float().mean() < 0.45


def test_every_shape_is_another_and_stays_in_bounds() -> None:
    phase = np.linspace(0, 1, 200, endpoint=False)
    drawn = np.stack([shape(phase) for shape in SHAPES.values()])
    assert np.abs(drawn).max() <= 1.25
    apart = ((drawn[:, None] - drawn[None]) ** 2).mean(2) + np.eye(len(SHAPES))
    assert apart.min() > 0.01


def _wide(folder: Path, head: str, line: str, *, rows: int = 8, steps: int = 20) -> Path:
    """A table with a header; `line` is a row's beginning, with {n} for its number and {y} for its label."""
    lines = [head + "," + ",".join(f"t{t}" for t in range(steps))]
    for n in range(rows):
        values = ",".join(str(round(n + t / 10, 2)) for t in range(steps))
        lines.append(line.format(n=n, y=n % 2) + "," + values)
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("head", "line"),
    [("id,label", "{n},{y}"), (",label", "{n},{y}"), ("Unnamed: 0,label", "{n},{y}"), ("label,sample", "{y},s{n}")],
)
def test_columns_that_number_the_rows_are_no_values(head: str, line: str, tmp_path: Path) -> None:
    found = open_series(_wide(tmp_path, head, line))
    assert tuple(found.values.shape) == (8, 1, 20) and found.classes == ["0", "1"]
    assert found.values[3, 0, 0] == 3.0


def test_a_header_of_numbers_is_a_header(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("label," + ",".join(map(str, range(12))) + "\n" + "up,1,2,3,4,5,6,7,8,9,10,11,12\n" * 3)
    found = open_series(path)
    assert tuple(found.values.shape) == (3, 1, 12) and found.classes == ["up"]


def test_lines_of_the_archive_with_a_bad_first_row_no_label_or_two_spaces(tmp_path: Path) -> None:
    good = "\t".join(["1", *(str(t / 10) for t in range(20))])
    path = tmp_path / "a.tsv"
    path.write_text(good.replace("0.5", "oops", 1) + "\n" + f"{good}\n" * 3)
    found = open_series(path)
    assert tuple(found.values.shape) == (3, 1, 20) and "oops" in found.skipped[0].reason and found.classes == ["1"]
    path.write_text(good + "\n" + "\t" + good.partition("\t")[2] + "\n")
    found = open_series(path)
    assert tuple(found.values.shape) == (2, 1, 20) and found.labels is not None and found.labels.tolist() == [0, -1]
    path.write_text("".join("  " + good.replace("\t", "  ") + "\n" for _ in range(4)))
    found = open_series(path)
    assert tuple(found.values.shape) == (4, 1, 20) and found.classes == ["1"]


def test_one_odd_first_series_does_not_cost_the_others(tmp_path: Path) -> None:
    path = tmp_path / "odd.ts"
    path.write_text("@classLabel true a b\n@data\n1,2,3:a\n" + "1,2,3:4,5,6:b\n" * 4)
    found = open_series(path)
    assert tuple(found.values.shape) == (4, 2, 3)
    assert lists(found.skipped, [("line 3", "1 channel 2")])


def test_series_of_an_array_that_cannot_be_used_are_left_out_and_named() -> None:
    """One of them ended the run, by a line without its number."""
    x = np.arange(24.0).reshape(4, 2, 3)
    x[1, 0, 1], x[2], x[3, 1, 1] = np.inf, NAN, NAN
    spec = as_data((x, [0, 1, 0, 1])).path
    data = open_series(spec)
    assert len(data) == 2 and data.labels is not None and data.labels.tolist() == [0, 1]
    assert data.values.isfinite().all() and data.values[1, 1].tolist() == [21, 22, 23]
    assert [each.path for each in data.skipped] == ["1", "2"]
    with pytest.raises(ValueError, match=facts("1 infinite")):
        open_series(spec, strict=True)
    with pytest.raises(ValueError, match=facts("0 values")):
        open_series(as_data(np.full((3, 4), NAN)).path)
