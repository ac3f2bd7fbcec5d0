"""Images as Hugging Face's `datasets` keeps them: Parquet with {"bytes", "path"}, and folders of save_to_disk."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from nearfar.data.class_folders import SPLIT_NAMES, split_names
from nearfar.data.columns import nearest
from nearfar.data.parquet_files import open_parquet, read_parquet
from nearfar.data.rows import Wanted, samples
from nearfar.data.sources import from_samples, split_folder
from nearfar.modalities.image.data.source import ImageSource
from nearfar.safe_read import LOG, check_ratio, read_bytes, read_json, regular

_KEPT = 4  # chunks of rows in memory at a time
_LOOKED_AT = 1000  # files below a folder


def image_tables(path: Path) -> list[Path]:
    """The Parquet and Arrow files with images that a path stands for; none where it stands for something else."""
    if path.is_file():
        files = [path] if path.suffix.lower() == ".parquet" else []
    elif (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        files = sorted(path.rglob("data-*.arrow"))
    elif path.is_dir():
        files = sorted(file for file in islice(path.glob("**/*.parquet"), _LOOKED_AT) if _is_visible(file, path))
    else:
        files = []
    return files if files and _image_column(files[0]) is not None else []


def table_folder_splits(path: Path) -> tuple[str, str] | None:
    """The training and the test part of such a folder, by names of folders or files such as train-00000-of-00002."""
    if not path.is_dir() or not (files := image_tables(path)):
        return None
    if found := split_names(path):
        there = set(found)
    else:
        there = {split for split in SPLIT_NAMES if any(_is_of(file, split) for file in files)}
    test = next((split for split in ("test", "validation") if split in there), None)
    return ("train", test) if test is not None and "train" in there else None


def table_images(path: Path, files: Sequence[Path], wanted: Wanted, root: Path | None = None) -> ImageSource:
    """The images of such files, read when they are needed, with labels and captions of their other columns."""
    part = f" ({wanted.split})" if wanted.split else ""
    if wanted.split is not None and "=" not in wanted.split and (path.is_dir()):
        files = _files_of_split(path, files, wanted.split)
        wanted = replace(wanted, split=None)
    column = wanted.path or _image_column(files[0])
    assert column is not None
    named = _class_names(files[0])
    stated: dict[str, list[object]] = {}
    count = 0
    for file in files:
        table = _opened(file)
        if column not in table.column_names:
            raise ValueError(f"{file} has no column {column!r}, but {', '.join(table.column_names)}")
        for name in table.column_names:
            if name != column:
                values = table.column(name).to_pylist()
                stated.setdefault(name, [None] * count).extend(_named(values, named.get(name)))
        count += table.num_rows
        for values in stated.values():
            values.extend([None] * (count - len(values)))
    found = samples({**stated, column: [str(row) for row in range(count)]}, replace(wanted, path=column), str(path))
    images = TableImages(files, column, root or (path if path.is_dir() else path.parent))
    rows = found.rows
    states = [file.stat() for file in files]
    return from_samples(
        ImageSource,
        f"tables {path}{part}",
        found,
        load=lambda: TableRows(images, rows),
        version=" ".join(f"{state.st_size}-{state.st_mtime_ns}" for state in states),
    )


class TableImages:
    """The bytes of each image, by row of all files; a few groups of rows are in memory at a time."""

    def __init__(self, files: Sequence[Path], column: str, root: Path) -> None:
        self.column, self.root, self._lock = column, root, threading.Lock()
        self._groups = [(file, group, rows) for file in files for group, rows in _row_groups(file)]
        self._load = lru_cache(_KEPT)(self._group)
        self._refused: dict[int, str] = {}  # groups that cannot be read, and why: each of their rows is asked for

    def __len__(self) -> int:
        return sum(rows for _, _, rows in self._groups)

    def __getitem__(self, index: int, /) -> bytes:
        cell = self._cell(index)
        if (path := self._named(cell)) is not None:
            return read_bytes(path, LOG)
        return cell if isinstance(cell, bytes) else bytes(cell["bytes"])

    def path_of(self, index: int) -> Path | None:
        """The file that a row names in place of bytes."""
        return self._named(self._cell(index))

    def _named(self, cell: Any) -> Path | None:
        if isinstance(cell, bytes) or (cell and cell.get("bytes") is not None):
            return None
        if not cell or not cell.get("path"):
            raise ValueError("the cell has no image")
        return self.root / str(cell["path"])

    def _cell(self, index: int) -> Any:
        for number, (_, _, rows) in enumerate(self._groups):
            if index < rows:
                with self._lock:
                    return self._load(number)[index].as_py()
            index -= rows
        raise IndexError(index)

    def _group(self, number: int) -> Any:
        file, group, _ = self._groups[number]
        if number in self._refused:
            raise ValueError(self._refused[number])
        try:
            if file.suffix.lower() == ".arrow":
                return _opened(file).column(self.column)
            return read_parquet(file, [self.column], group=group).column(self.column)
        except ValueError as error:
            self._refused[number] = str(error)
            raise


class TableRows:
    """Some rows of such files."""

    def __init__(self, images: TableImages, rows: Sequence[int]) -> None:
        self.images, self.rows = images, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int, /) -> bytes:
        return self.images[self.rows[index]]

    def path_of(self, index: int) -> Path | None:
        return self.images.path_of(self.rows[index])


def _is_visible(file: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _is_of(file: Path, split: str) -> bool:
    words = file.stem.lower().replace("_", "-").split("-")
    return any(name in words or file.parent.name.lower() == name for name in SPLIT_NAMES[split])


def _files_of_split(path: Path, files: Sequence[Path], split: str) -> list[Path]:
    if split_names(path):
        folder = split_folder(path, split)
        return [file for file in files if file.is_relative_to(folder)]
    usual = next((key for key, names in SPLIT_NAMES.items() if split.lower() in names), None)
    found = [file for file in files if usual is not None and _is_of(file, usual)]
    if not found:
        raise ValueError(f"{path} has no files of the split {split!r}{nearest(split, [file.stem for file in files])}")
    return found


def _opened(file: Path) -> Any:
    """The table of a file; of Parquet without its images, which are read group by group."""
    import pyarrow

    try:
        if file.suffix.lower() == ".parquet":
            column, about = _image_column(file), open_parquet(file)
            table = read_parquet(file, [name for name in about.schema_arrow.names if name != column])
            return table.append_column(column, pyarrow.nulls(about.metadata.num_rows))
        return _stream(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file} cannot be read: {' '.join(str(error).split())[:200]}") from None


def _stream(file: Path) -> Any:
    """The table of an Arrow file, with its offsets checked: Arrow trusts them, and would read beyond the file."""
    import pyarrow

    batches, held = [], 0
    with pyarrow.ipc.open_stream(pyarrow.memory_map(str(regular(file)))) as stream:
        for batch in stream:
            batch.validate(full=True)
            held += batch.nbytes
            check_ratio(file, held)
            batches.append(batch)
        return pyarrow.Table.from_batches(batches, stream.schema)


def _row_groups(file: Path) -> Iterator[tuple[int, int]]:
    if file.suffix.lower() == ".arrow":
        yield 0, _opened(file).num_rows
        return
    about = open_parquet(file).metadata
    yield from ((group, about.row_group(group).num_rows) for group in range(about.num_row_groups))


def _schema(file: Path) -> Any:
    import pyarrow
    from pyarrow import parquet

    with suppress(Exception):  # pyarrow raises errors of every kind on broken files
        if file.suffix.lower() == ".parquet":
            return parquet.read_schema(file)
        return pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))).schema
    return pyarrow.schema([])


def _image_column(file: Path) -> str | None:
    """The first column of images: {"bytes", "path"}, or bytes that the file's own notes call an image."""
    import pyarrow

    schema, features = _schema(file), _features(file)
    for field in schema:
        kind = str(features.get(field.name, {}).get("_type", "Image"))
        struct = pyarrow.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
        stated = field.name in features and pyarrow.types.is_binary(field.type)
        if kind == "Image" and (struct or stated):
            return str(field.name)
    return None


def _features(file: Path) -> dict[str, Any]:
    with suppress(ValueError, KeyError, TypeError, OSError):
        about = (_schema(file).metadata or {}).get(b"huggingface")
        if about is None:
            found = read_json(file.parent / "dataset_info.json")["features"]
        else:
            found = json.loads(about)["info"]["features"]
        return {name: value for name, value in found.items() if isinstance(value, dict)}
    return {}


def _class_names(file: Path) -> dict[str, list[str]]:
    return {name: f["names"] for name, f in _features(file).items() if f.get("_type") == "ClassLabel" and "names" in f}


def _named(values: Sequence[Any], names: Sequence[str] | None) -> list[object]:
    """Numbers of classes as their names; -1 is no label."""
    if names is None:
        return list(values)
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else None for value in values]
