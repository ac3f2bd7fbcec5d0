"""Sentences by number: alone, with labels, in pairs with a score, or with hard negatives."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import torch
from torch import Tensor

from nearfar.data.cells import missing, text_of
from nearfar.data.columns import group_column, label_column, nearest
from nearfar.data.config import ReadConfig, read_config
from nearfar.data.dataset import Dataset, Facts, Skipped
from nearfar.data.rows import (
    GROUPS,
    LABELS,
    Columns,
    Wanted,
    cell_texts,
    find_column,
    listed,
    named_by,
    rows_of_split,
    sound,
)
from nearfar.data.tables import READERS, path_and_rows, read_columns, read_text
from nearfar.nn.text import trim_padding

TEXTS = ("text", "texts", "sentence", "sentences", "caption", "title", "utterance", "query")
FIRST = ("text_a", "anchor", "sentence1", "sentence_a", "sent0", "s1", "premise")
SECOND = ("positive", "text_b", "sentence2", "sentence_b", "sent1", "s2", "hypothesis")
THIRD = ("negative", "hard_neg", "negatives", "negative_1")
SCORES = ("score", "similarity", "similarity_score")
Tokenize = Callable[[Sequence[str]], Tensor]  # texts to (N, L) integers, 0 where there is no text
LONGEST = 20_000  # characters: a tokenizer cuts what its encoder cannot read, this is where a text is no text


class TextDataset(Dataset):
    """N texts, and what is known of each; `fetch` gives tokens (B, L) int64.

    Args:
        texts: N, with single spaces: a pair's first, a triple's anchor.
        partners: N texts that belong to them (a pair's second, a triple's positive), or None.
        negatives: N tuples of texts that do not (a triple's negative), each as long as the others, or None.
        scores: (N,) float32, how alike the two of a pair are, or None.
        tokenize: called when the first tokens are needed; before, a tokenizer may still have to be learned.
        facts: labels, classes, groups, names (the line or row that each came from), skipped.

    >>> data = TextDataset(["a cat", "a dog"], labels=torch.tensor([0, 1]), classes=["cat", "dog"])
    >>> data.subset(torch.tensor([1])).texts, len(data)
    (['a dog'], 2)
    """

    size = 0
    texts: list[str]

    def __init__(
        self,
        texts: list[str],
        *,
        partners: list[str] | None = None,
        negatives: list[tuple[str, ...]] | None = None,
        scores: Tensor | None = None,
        tokenize: Tokenize | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        self.texts, self.partners, self.negatives, self.scores = texts, partners, negatives, scores
        self.tokenize = tokenize
        self._tokens: list[Tensor] = []  # until they are needed
        self.describe(**facts)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def tokens(self) -> list[Tensor]:
        """(N, L) int32 of each of `text_columns`, 0 where there is no text."""
        if not self._tokens:
            if self.tokenize is None:
                raise ValueError("these texts have no tokenizer; Modality.open gives them one")
            self._tokens = [self.tokenize(part).to(torch.int32) for part in self.text_columns]
        return self._tokens

    def fetch(self, indices: Tensor) -> Tensor:
        return self.tokens[0][indices.cpu()].long()

    @property
    def token_counts(self) -> Tensor:  # type: ignore[override]
        return self.tokens[0].ne(0).sum(1)

    def longest_text(self, indices: Tensor) -> int | None:
        return max(trim_padding(tokens[indices]).shape[1] for tokens in self.tokens)

    def subset(self, indices: Tensor) -> Self:
        part = super().subset(indices)
        part._tokens = [tokens[indices] for tokens in self._tokens]
        return part

    @property
    def paired(self) -> bool:
        """Whether partners are known to belong to their texts: not where a score or a label says how far they do."""
        judged = self.scores is not None or self.labels is not None
        return self.partners is not None and (self.negatives is not None or not judged)

    def positives(self, least: float) -> "TextDataset":
        """The pairs with at least this score, which then belong together.

        >>> pairs = TextDataset(["a", "b", "e"], partners=["c", "d", "f"], scores=torch.tensor([0.5, 4.0, 5.0]))
        >>> pairs.positives(4.0).texts, pairs.positives(4.0).paired
        (['b', 'e'], True)
        """
        if self.scores is None:
            raise ValueError(
                f"--data.positive_score is {least:g}, and the texts are not pairs with scores; leave it out"
            )
        found = self.subset((self.scores >= least).nonzero()[:, 0])
        if len(found) < 2:
            highest = float(self.scores.max())
            raise ValueError(f"--data.positive_score is {least:g}, and the scores go up to {highest:g}; lower it")
        found.scores = found.labels = None
        return found

    def sentences(self) -> "TextDataset":
        """Every text of every pair as a sample of its own; the two of a pair are one group.

        >>> pairs = TextDataset(["a", "b"], partners=["c", "d"], scores=torch.tensor([0.5, 4.0]))
        >>> pairs.sentences().texts, pairs.sentences().groups.tolist()
        (['a', 'b', 'c', 'd'], [0, 1, 0, 1])
        """
        if self.partners is None:
            return self
        groups = torch.arange(len(self)) if self.groups is None else self.groups
        return TextDataset(
            [*self.texts, *self.partners],
            tokenize=self.tokenize,
            names=[*self.names, *(f"{name}, partner" for name in self.names)],
            labels=None if self.labels is None else self.labels.repeat(2),
            classes=self.classes,
            groups=groups.repeat(2),
            skipped=self.skipped,
        )


def open_texts(
    spec: str | Path,
    read: ReadConfig | None = None,
    *,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    longest: int = LONGEST,
    tokenize: Tokenize | None = None,
    **settings: Any,
) -> TextDataset:
    """The sentences of a file; what is empty, too long or not UTF-8 is left out and listed.

    Args:
        spec: .txt with a sentence a line (empty lines are nothing); or a .csv, .tsv, .jsonl or .parquet table with a
            column of texts, two of a pair (text_a and text_b, sentence1 and sentence2, …, and a score), or three of a
            triple (anchor, positive, negative; or text, positive, negative), and more: negative_2, negative_3, …, or
            lists of negatives in one column; or a folder with such a file for each split. A table's path may end in
            ":column=value" or ":column!=value", as in `open_images`.
        split: file of that name in a folder; of a table as in `open_images`; None takes all of a file.
        read: how to read, as in a run's configuration; `settings` are its fields as keywords: text_column="q". With a
            `text_column` alone, other texts of the table are not read.
        classes: names of the labels in the order to number them, such as those of the training data.
        longest: characters of a text.
        tokenize: as in `TextDataset`.
    """
    read = read_config(read, settings)
    spec, asked = path_and_rows(spec)
    split = asked or split
    wanted = Wanted.of(read, split=split, classes=classes)
    path = _file(Path(spec).expanduser(), split)
    lines = path.suffix.lower() == ".txt"
    columns, keep = _lines(path, split) if lines else _table(path, split)
    used = _text_columns(path, columns, read.text_column, read.positive_column, read.negative_column)
    scored = find_column(columns, "score", None, SCORES, str(path)) if len(used) == 2 else None
    most = max((len(_cells(used, row)) for row in keep), default=0)  # texts of a row
    kept: dict[int, list[str]] = {}  # by row, its texts
    skipped: list[Skipped] = []
    for row in keep:
        found = [text_of(cell, longest) for cell in _cells(used, row)]
        fault = next((f"the text {fault}" for _, fault in found if fault), "")
        if not fault and len(found) < most:
            fault = f"{len(found) - 2} negatives, expected {most - 2} as in other rows"
        if scored is not None and _number(scored[row]) is None:
            fault = f"the score is {scored[row]!r}, expected a number"
        if fault:
            skipped.append(Skipped(f"{'line' if lines else 'row'} {row + 1}", fault))
        else:
            kept[row] = [text for text, _ in found]
    if skipped and (read.strict or not kept):
        raise ValueError(f"{skipped[0].path} of {path} cannot be used: {skipped[0].reason}")
    if not kept:
        raise ValueError(f"{path} has no texts, expected one for each {'line' if lines else 'row'}")
    rows, texts = list(kept), list(zip(*kept.values(), strict=True))
    named = None if wanted.labels is False else find_column(columns, "label", wanted.label, LABELS, str(path))
    if wanted.labels and named is None:
        raise ValueError(f"{path} has no column of labels among {listed(columns)}; {named_by('label')}")
    grouped = find_column(columns, "group", wanted.group, GROUPS, str(path))
    # Numbered over the whole table, so that every split of it numbers them alike.
    labels, classes = (None, None) if named is None else label_column(list(map(sound, named)), wanted.classes)
    return TextDataset(
        list(texts[0]),
        tokenize=tokenize,
        names=[str(row + 1) for row in rows],
        partners=list(texts[1]) if len(texts) > 1 else None,
        negatives=list(zip(*texts[2:], strict=True)) if len(texts) > 2 else None,
        scores=None if scored is None else torch.tensor([_number(scored[row]) for row in rows]),
        labels=None if labels is None else labels[rows],
        classes=classes,
        groups=None if grouped is None else group_column(grouped)[rows],
        skipped=skipped,
    )


def _file(path: Path, split: str | None) -> Path:
    """The file itself, or the one of a split in a folder."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in (".txt", *READERS))
        names = [file.stem for file in files]
        if not files:
            raise ValueError(f"{path} has no file of texts, expected one of .txt, {', '.join(READERS)}")
        if split not in names:
            there = ", ".join(map(repr, names[:12]))
            way_out = f"name one of them as the split{nearest(split or '', names)}"
            if split is None:
                usual = files[names.index("train") if "train" in names else 0]
                way_out = f"give one of them, such as --data {usual}, in Python split={usual.stem!r}"
            raise ValueError(f"{path} has the files {there}; {way_out}")
        return files[names.index(split)]
    if not path.is_file():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}")
    if path.suffix.lower() not in (".txt", *READERS):
        raise ValueError(f"{str(path)!r} is not a file of texts, expected one of .txt, {', '.join(READERS)}")
    return path


def _lines(path: Path, split: str | None) -> tuple[Columns, list[int]]:
    if split not in (None, path.stem):
        raise ValueError(f"{path} has no splits, expected a table with a column 'split', or a file for each")
    lines: list[object] = list(read_text(path).split("\n"))
    return {"text": lines}, [row for row, line in enumerate(lines) if not missing(line)]


def _table(path: Path, split: str | None) -> tuple[Columns, list[int]]:
    """A file named after the split may do without a column of it."""
    columns = read_columns(path)
    return columns, rows_of_split(columns, None if split == path.stem else split, str(path))


def _text_columns(
    path: Path, columns: Columns, name: str | None, positive: str | None, negative: str | None
) -> list[list[object]]:
    """One, two or more columns: texts, pairs, or pairs with negatives."""
    where = str(path)
    second = None
    if positive is not None or negative is not None or name is None:
        second = find_column(columns, "positive", positive, SECOND, where)
    if negative is not None and second is None:
        raise ValueError(f"{path} has no column of positives beside {negative!r}; name it with positive_column")
    if second is not None:
        sure = positive is not None or find_column(columns, "positive", None, ("positive",), where) is second
        first = find_column(columns, "text", name, (*FIRST, *TEXTS) if sure else FIRST, where)
        if first is not None:
            third = find_column(columns, "negative", negative, THIRD, where)
            return [first, second] if third is None else [first, second, third, *_numbered(columns, third)]
    texts = find_column(columns, "text", name, TEXTS, where)
    if texts is None:
        raise ValueError(f"{path} has no column of texts among {listed(columns)}; name it with text_column")
    return [texts]


def _cells(used: list[list[object]], row: int) -> list[object]:
    """The texts of a row; negatives may be in lists."""
    return [*(column[row] for column in used[:2]), *(cell for column in used[2:] for cell in cell_texts(column[row]))]


def _numbered(columns: Columns, first: list[object]) -> list[list[object]]:
    """The columns that continue a first one in numbers: negative, negative_2, negative_3; or negative_1, negative_2.

    >>> columns = {"negative_3": ["c"], "negative": ["a"], "negative_2": ["b"], "negative_words": ["d"]}
    >>> _numbered(columns, columns["negative"])
    [['b'], ['c']]
    """
    name = next(name for name, column in columns.items() if column is first)
    stem = name.removesuffix("_1")
    found = {name: re.fullmatch(rf"{re.escape(stem)}_(\d+)", name) for name in columns if name != stem + "_1"}
    numbers = {int(match[1]): name for name, match in found.items() if match is not None}
    return [columns[numbers[number]] for number in sorted(numbers)]


def _number(value: object) -> float | None:
    """
    >>> _number("4.75"), _number("high"), _number(float("nan"))
    (4.75, None, None)
    """
    try:
        number = float(value) if isinstance(value, str | int | float) else float("nan")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
