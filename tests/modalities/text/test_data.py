"""Sentences, labelled sentences, pairs and triples, from every kind of file."""

import json
from pathlib import Path

import pyarrow
import pytest
import torch
from pyarrow import parquet

from nearfar.modalities.text.data import open_texts
from tests.support.facts import all_tell, facts, lists


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        separator = "\t" if path.suffix == ".tsv" else ","
        lines = [separator.join(rows[0]), *(separator.join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_sentence_a_line(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_bytes("\ufeffone  two\r\n\n  \nünï\n".encode() + b"caf\xe9\n" + b"x" * 30 + b"\nlast")
    data = open_texts(tmp_path / "s.txt", longest=20)
    assert data.texts == ["one two", "ünï", "last"] and data.names == ["1", "4", "7"] and len(data) == 3
    assert lists(data.skipped, [("line 5", "text UTF-8"), ("line 6", "text 30 20")])
    assert data.labels is None and data.partners is None and data.scores is None and data.groups is None
    with pytest.raises(ValueError, match=facts("line 5 UTF-8")):
        open_texts(tmp_path / "s.txt", strict=True)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_labelled_texts(tmp_path: Path, suffix: str) -> None:
    rows: list[dict[str, object]] = [
        {"text": "fly in italian", "label": "translate", "group": "a", "split": "train"},
        {"text": "wake me at six", "label": "alarm", "group": "b", "split": "test"},
        {"text": " ", "label": "alarm", "group": "b", "split": "train"},
    ]
    data = open_texts(write(tmp_path / f"t{suffix}", rows))
    assert data.texts == ["fly in italian", "wake me at six"] and data.classes == ["alarm", "translate"]
    assert data.labels is not None and data.labels.tolist() == [1, 0]
    assert data.groups is not None and data.groups.tolist() == [0, 1]
    assert lists(data.skipped, [("row 3", "text empty")])
    part = data.subset(torch.tensor([1]))
    assert part.texts == ["wake me at six"] and part.labels is not None and part.labels.tolist() == [0]
    assert open_texts(tmp_path / f"t{suffix}", split="test").texts == ["wake me at six"]
    assert open_texts(f"{tmp_path / 't'}{suffix}:split=test").texts == ["wake me at six"]
    known = open_texts(tmp_path / f"t{suffix}", classes=["translate", "none", "alarm"]).labels
    assert (
        known is not None
        and known.tolist() == [0, 2]
        and open_texts(tmp_path / f"t{suffix}", labels=False).labels is None
    )


def test_pairs_with_scores(tmp_path: Path) -> None:
    """As STS-B has them: quotes that open and never close."""
    lines = ["split\tscore\ts1\ts2", 'dev\t4.75\t"A man\ta man', "dev\thigh\ta\tb", "dev\t0\tone\t", "dev\t1.5\tx\ty"]
    (tmp_path / "dev.tsv").write_text("\n".join(lines))
    data = open_texts(tmp_path, split="dev")
    assert data.texts == ['"A man', "x"] and data.partners == ["a man", "y"] and data.negatives is None
    assert data.scores is not None and data.scores.tolist() == [4.75, 1.5] and data.scores.dtype == torch.float32
    assert all_tell((s.reason for s in data.skipped), ["score 'high'", "text empty"])
    part = data.subset(torch.tensor([1]))
    assert part.partners == ["y"] and part.scores is not None and part.scores.tolist() == [1.5]
    with pytest.raises(ValueError, match=facts("'dev' split")):
        open_texts(tmp_path, split="dve")


@pytest.mark.parametrize("names", [("anchor", "positive", "negative"), ("sent0", "sent1", "hard_neg")])
def test_triples(tmp_path: Path, names: tuple[str, str, str]) -> None:
    data = open_texts(write(tmp_path / "t.csv", [dict(zip(names, ("a", "b", "c"), strict=True))]))
    assert (data.texts, data.partners, data.negatives) == (["a"], ["b"], [("c",)])
    assert data.subset(torch.tensor([0])).negatives == [("c",)]


@pytest.mark.parametrize(
    "names", [("negative", "negative_2", "negative_10"), ("negative_1", "negative_2", "negative_3")]
)
def test_several_negatives_in_columns_or_in_a_list(tmp_path: Path, names: tuple[str, ...]) -> None:
    """As `nearfar mine` and sentence-transformers write them: in the order of their numbers."""
    rows: list[dict[str, object]] = [
        {"anchor": "a", names[2]: "e", "positive": "b", **dict(zip(names, "cde", strict=True))},
        {"anchor": "f", names[2]: "j", "positive": "g", **dict(zip(names, ["h", "j", "j"], strict=True))},
    ]
    data = open_texts(write(tmp_path / "t.csv", rows))
    assert data.negatives == [("c", "d", "e"), ("h", "j", "j")] and data.paired
    assert data.text_columns == [["a", "f"], ["b", "g"], ["c", "h"], ["d", "j"], ["e", "j"]]
    rows = [{"anchor": "a", "positive": "b", "negatives": list("cde")}]
    rows += [{"anchor": "f", "positive": "g", "negatives": ["h"]}, {"anchor": "k", "positive": "l", "negatives": []}]
    for suffix in (".jsonl", ".parquet"):
        data = open_texts(write(tmp_path / f"t{suffix}", rows))
        assert data.negatives == [("c", "d", "e")] and data.subset(torch.tensor([0])).negatives == data.negatives
        assert lists(data.skipped, [("row 2", "negatives 1 3"), ("row 3", "empty")])
    (tmp_path / "l.jsonl").write_text('{"text": ["a", "b"]}\n{"text": "c"}\n')
    data = open_texts(tmp_path / "l.jsonl")  # a list is no text elsewhere
    assert data.texts == ["c"] and data.partners is None and lists(data.skipped, [("row 1", "list")])


def test_columns_of_any_name(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": "a", "positive": "b", "other": "c", "wrong": "d"}]
    path = write(tmp_path / "t.csv", rows)
    data = open_texts(path)  # a column called positive says what it is
    assert (data.texts, data.partners, data.negatives) == (["a"], ["b"], None) and data.paired
    data = open_texts(path, text_column="other", positive_column="text", negative_column="wrong")
    assert (data.texts, data.partners, data.negatives) == (["c"], ["a"], [("d",)])
    data = open_texts(path, negative_column="wrong")
    assert (data.texts, data.partners, data.negatives) == (["a"], ["b"], [("d",)])
    data = open_texts(path, text_column="other")
    assert (data.texts, data.partners, data.negatives) == (["c"], None, None) and not data.paired


def test_pairs_that_are_judged_are_sentences(tmp_path: Path) -> None:
    scored = open_texts(
        write(tmp_path / "s.csv", [{"s1": "a", "s2": "b", "score": 1}, {"s1": "c", "s2": "d", "score": 5}])
    )
    assert not scored.paired
    alone = scored.sentences()
    assert alone.texts == ["a", "c", "b", "d"] and alone.partners is None and alone.scores is None
    assert alone.groups is not None and alone.groups.tolist() == [0, 1, 0, 1]  # never negatives, never split
    assert len(alone.names) == len(set(alone.names)) == 4
    nli = [
        {"premise": "a", "hypothesis": "b", "label": "contradiction"},
        {"premise": "c", "hypothesis": "d", "label": "x"},
    ]
    labelled = open_texts(write(tmp_path / "n.csv", nli))
    assert not labelled.paired and labelled.sentences().labels is not None
    assert open_texts(write(tmp_path / "p.csv", [{"s1": "a", "s2": "b"}])).paired
    triple = open_texts(write(tmp_path / "t.csv", [{"anchor": "a", "positive": "b", "negative": "c", "label": "x"}]))
    assert triple.paired
    plain = open_texts(write(tmp_path / "l.csv", [{"text": "a"}]))
    assert plain.sentences() is plain


@pytest.mark.parametrize(
    ("name", "content", "arguments", "message"),
    [
        ("t.csv", "a,b\n1,2\n", {}, "column text 'a' 'b' text_column"),
        ("t.csv", "a,b\n1,2\n", {"text_column": "c"}, "'c' text"),
        ("t.csv", "a,b\n1,2\n", {"text_column": "a", "positive_column": "c"}, "'c' positive"),
        ("t.csv", "a,b\n1,2\n", {"negative_column": "b"}, "column 'b'"),
        ("t.csv", "text\n", {}, "text"),
        ("t.csv", "text\nhello\n", {"labels": True}, "column label"),
        ("t.txt", "hello\n", {"split": "test"}, "split"),
        ("t.txt", "\n\n", {}, "text line"),
        ("t.doc", "", {}, "text .txt .csv"),
    ],
)
def test_refuses_in_one_line(
    tmp_path: Path, name: str, content: str, arguments: dict[str, str | bool], message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=facts(message)) as error:
        open_texts(tmp_path / name, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    with pytest.raises(FileNotFoundError, match=facts("folder")):
        open_texts(tmp_path / "gone.txt")


def test_a_folder_without_texts_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with pytest.raises(ValueError, match=facts(f"{tmp_path} .txt .csv")):
        open_texts(tmp_path)
