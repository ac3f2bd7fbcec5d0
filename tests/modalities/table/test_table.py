"""Tables: columns of numbers and texts, views from other rows, and a run from end to end."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import nearfar
from nearfar.config import TrainConfig, build, completed
from nearfar.data.config import DataConfig, ReadConfig
from nearfar.data.tables import read_columns
from nearfar.evaluation.results import Results
from nearfar.modalities import make_modality
from nearfar.modalities.table.data import TableDataset, code_of, open_table
from nearfar.modalities.table.modality import TableModality
from nearfar.modalities.table.views import corrupted
from nearfar.training.run import Run
from tests.support.facts import facts

TABLE = "age,color,weight,label\n30,red,1.5,yes\n40,blue,,no\n50,red,3.5,yes\n60,?,5.5,no\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(TABLE)
    return path


def fitted(path: Path) -> tuple[TableModality, TableDataset]:
    config: TrainConfig = build(TrainConfig, completed({"data": str(path), "method": "scarf"}), "train")
    modality = make_modality(config)
    assert isinstance(modality, TableModality)
    data = modality.open(str(path))
    assert isinstance(data, TableDataset)
    modality.fit(data)
    return modality, data


def test_numbers_texts_missing_values_and_labels(table: Path) -> None:
    data = open_table(str(table), DataConfig(str(table)))
    assert data.header == ["age", "color", "weight"] and data.of_texts == [False, True, False]
    assert data.values[:, 0].tolist() == [30, 40, 50, 60] and data.values[1, 2].isnan() and data.values[3, 1].isnan()
    assert data.values[0, 1] == data.values[2, 1] == code_of("red") != data.values[1, 1]
    assert data.labels is not None and data.classes == ["no", "yes"] and data.labels.tolist() == [1, 0, 1, 0]
    assert data.subset(torch.tensor([2, 1])).fetch(torch.tensor([0]))[0, 0] == 50


def test_columns_are_scaled_and_texts_become_one_column_each(table: Path) -> None:
    modality, data = fitted(table)
    x = modality.prepare(data.values)
    assert x.shape == (4, 4) and modality.encoder()[0].in_features == 4  # two numbers, two colors
    age = data.values[:, 0]
    torch.testing.assert_close(x[:, 0], (age - age.mean()) / age.std(unbiased=False))
    assert x[1, 1] == 0 and torch.equal(x[:, 2:].sum(1), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    again = make_modality(build(TrainConfig, {**completed({"data": "x.csv", "method": "scarf"}), "table": {
        name: getattr(modality.config.table, name) for name in ("columns", "categories", "mean", "std")
    }}, "train"))  # fmt: skip
    torch.testing.assert_close(again.prepare(data.values), x)


def test_an_item_is_a_row_or_a_mapping(table: Path) -> None:
    modality, data = fitted(table)
    assert torch.equal(modality.read([40, "blue", 2.0])[:2], data.values[1, :2])
    by_name = modality.read({"weight": 1.5, "color": "red", "age": 30})
    assert torch.equal(by_name, data.values[0])
    with pytest.raises(ValueError, match=facts("'tall' 'age'")):
        modality.read(["tall", "red", 1.0])
    with pytest.raises(ValueError, match=facts("(2,) (3,)")):
        modality.read([1.0, "red"])
    with pytest.raises(ValueError, match=facts("'weight'")):
        modality.read({"age": 3, "color": "red"})


def test_a_view_takes_its_share_of_columns_from_other_rows() -> None:
    values = torch.arange(50.0)[:, None] + 1000 * torch.arange(10.0)
    data, index = TableDataset(values, [str(i) for i in range(10)], [False] * 10), torch.tensor([3, 40, 7])
    rows = data.fetch(index)
    x = corrupted(rows, data, index, 0.6, seed=1, step=2, view=1)
    assert torch.equal(x // 1000, rows // 1000)  # each column keeps to its own values
    assert ((x != rows).sum(1) <= 6).all() and (x != rows).any(1).all()
    alone = corrupted(rows[1:2], data, index[1:2], 0.6, seed=1, step=2, view=1)
    assert torch.equal(alone[0], x[1])  # whatever batch a sample is in
    assert not torch.equal(corrupted(rows, data, index, 0.6, seed=1, step=3, view=1), x)
    assert torch.equal(corrupted(rows, data, index, 0.0, seed=1, step=2, view=1), rows)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.csv", "label\nyes\nno\n", "label none.csv"),
        ("other.csv", "age,size,weight,label\n1,2,3,yes\n", "'color'"),
    ],
)
def test_tables_that_do_not_fit_are_refused(name: str, content: str, said: str, table: Path) -> None:
    modality, _ = fitted(table)
    (table.parent / name).write_text(content)
    with pytest.raises(ValueError, match=facts(said)):
        modality.open(str(table.parent / name))


def test_a_run_learns_which_columns_go_together(tmp_path: Path) -> None:
    """Classes are the signs of three waves over 24 columns; single columns are mostly noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 4
    x = rng.normal(size=(4, 24))[labels] + 1.2 * rng.normal(size=(400, 24))
    np.savez(tmp_path / "rows.npz", x=x, y=labels)
    config: TrainConfig = build(
        TrainConfig,
        completed({"data": str(tmp_path / "rows.npz"), "method": "scarf", "epochs": 15, "batch_size": 64}),
        "train",
    )
    assert config.kind == "table"
    Run(config, tmp_path / "run", resume=False, console=Console(quiet=True)).execute()
    found = Results.load(tmp_path / "run" / "evaluation.json")
    trained, untrained = found.value("trained", "knn"), found.value("untrained", "knn")
    assert trained is not None and untrained is not None and trained > untrained
    encoder = nearfar.load(tmp_path / "run")
    assert encoder.encode([x[0], x[1]]).shape == (2, 256)


@pytest.mark.parametrize("cell", ["inf", "1e999", "-1e39"])
def test_numbers_that_are_not_finite_are_named(cell: str, tmp_path: Path) -> None:
    """A column with one of them was read as texts, without a word; in arrays it made the statistics NaN."""
    path = tmp_path / "a.csv"
    path.write_text(f"a,b\n1,2\n{cell},3\n")
    with pytest.raises(ValueError, match=facts("'a' row 1 finite")):
        open_table(str(path), ReadConfig())
    np.savez(tmp_path / "a.npz", x=np.array([[1.0, 2.0], [3.0, float(cell)]]))
    with pytest.raises(ValueError, match=facts("row 1 column 1 finite")):
        open_table(str(tmp_path / "a.npz"), ReadConfig())


def test_damaged_and_odd_tables_are_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"a": 1{"0" * 400}}}\n{{"a": 2}}\n')
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04" + b"x" * 100)
    (tmp_path / "c.npz").write_bytes(b"")
    np.savez(tmp_path / "d.npz", x=np.ones((3, 2), complex))
    for name in ("a.jsonl", "b.npz", "c.npz", "d.npz"):
        with pytest.raises(ValueError, match=name):
            open_table(str(tmp_path / name), ReadConfig())


def test_a_header_of_many_columns_takes_no_squared_time(tmp_path: Path) -> None:
    columns = 100_000
    (tmp_path / "a.csv").write_text(",".join(f"c{i}" for i in range(columns)) + "\n" + ",".join(["1"] * columns) + "\n")
    start = time.process_time()
    assert len(read_columns(tmp_path / "a.csv")) == columns and time.process_time() - start < 5
    (tmp_path / "b.csv").write_text("a,b,a\n1,2,3\n")
    assert read_columns(tmp_path / "b.csv") == {"a": ["1"], "b": ["2"]}


def test_a_row_without_values_is_left_out_and_named(tmp_path: Path) -> None:
    """It was trained on as a row of means."""
    (tmp_path / "a.csv").write_text("a,b,label\n1,x,0\n,,1\n3,y,1\nnan,,0\n")
    np.savez(tmp_path / "a.npz", x=np.array([[1, 2], [np.nan] * 2, [np.nan, 3], [np.nan] * 2]), y=[0, 1, 1, 0])
    for name in ("a.csv", "a.npz"):
        data = open_table(str(tmp_path / name), ReadConfig())
        assert data.names == ["0", "2"] and data.labels is not None and data.labels.tolist() == [0, 1]
        assert [each.path for each in data.skipped] == ["row 1", "row 3"]
        with pytest.raises(ValueError, match=facts("row 1 values")):
            open_table(str(tmp_path / name), ReadConfig(strict=True))
    (tmp_path / "b.csv").write_text("a,b,label\n,,1\n")
    with pytest.raises(ValueError, match=facts("row 0 values")):
        open_table(str(tmp_path / "b.csv"), ReadConfig())
