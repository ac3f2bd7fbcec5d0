"""Lists of paths or texts, and frames of other libraries, as a table in the cache that is read like any other."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.data.cache import cache_folder, replacing
from nearfar.data.python_parts import refuse_other_labels
from nearfar.data.rows import PATHS, usual_column

Frame = dict[str, list[Any]]  # equally long columns by name
_FILE_NAME = re.compile(r"\S+\.(jpe?g|png|webp|bmp|tiff?|gif|wav|flac|mp3|ogg)", re.IGNORECASE)
_LOOKED_AT = 20  # entries of a list of texts, any of which may be a file


def as_frame(data: Any) -> tuple[Frame, tuple[str, ...]] | None:
    """The columns of an object that lists paths or texts, and notes on it; None of another object.

    Takes lists of paths or texts, frames of pandas, polars and pyarrow, data sets of Hugging Face without samples in
    memory, and torchvision's ImageFolder.
    """
    refuse_other_labels(data)
    if _is_image_folder(data):
        paths, numbers = zip(*data.samples, strict=True)
        note = "the transform of the ImageFolder is not applied: nearfar reads and resizes the files; views= takes one"
        return {"path": list(paths), "label": [data.classes[n] for n in numbers]}, (note,) if data.transform else ()
    if isinstance(data, list | tuple | np.ndarray) and len(data) and all(isinstance(each, str | Path) for each in data):
        texts = list(map(str, data))
        return {"path" if _are_files(texts) else "text": texts}, ()
    if (
        isinstance(data, tuple)
        and len(data) == 2
        and (inner := as_frame(data[0])) is not None
        and hasattr(data[1], "__len__")
        and len(data[1]) == len(data[0])
    ):
        return {**inner[0], "label": _plain(data[1])}, inner[1]
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):  # a LazyFrame of polars
        data = data.collect()
    columns = _columns(data)
    if columns and not any(columns.values()):
        raise ValueError(f"data is a {type(data).__name__} without rows, expected one for each sample")
    if columns is None or not all(map(_is_plain, columns.values())):
        return None
    return columns, ()


def _is_image_folder(data: Any) -> bool:
    """torchvision's ImageFolder and DatasetFolder: `samples` are (path, class number)."""
    samples = getattr(data, "samples", None)
    if not isinstance(samples, list) or not samples or not hasattr(data, "classes") or not hasattr(data, "transform"):
        return False
    first = samples[0]
    return isinstance(first, tuple) and len(first) == 2 and isinstance(first[0], str) and Path(first[0]).is_file()


def _columns(data: Any) -> Frame | None:
    """Columns of a frame of pandas or polars, a table of pyarrow, or a data set of Hugging Face."""
    if hasattr(data, "column_names") and hasattr(data, "to_pydict"):  # pyarrow
        return {str(name): list(column) for name, column in data.to_pydict().items()}
    if hasattr(data, "column_names") and hasattr(data, "features"):  # Hugging Face
        rows = data[0] if not hasattr(data, "__len__") or len(data) else None
        if not isinstance(rows, Mapping) or not all(_is_plain([value]) for value in rows.values()):
            return None  # samples in memory, such as pictures
        found = {str(name): list(data[name]) for name in data.column_names}
        for name, values in found.items():
            names = getattr(data.features.get(name), "names", None) if isinstance(data.features, Mapping) else None
            if names:
                found[name] = [names[n] if isinstance(n, int) and 0 <= n < len(names) else None for n in values]
        return found
    if hasattr(data, "columns") and hasattr(data, "__getitem__") and hasattr(data, "shape"):  # pandas, polars
        return {str(name): _plain(data[name]) for name in data.columns}
    return None


def _plain(column: Any) -> list[Any]:
    """A column as plain values: pandas and numpy have `tolist`, polars `to_list`."""
    for name in ("to_list", "tolist"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    return list(column)


def _is_plain(column: Sequence[Any]) -> bool:
    """Whether a column has nothing but texts, numbers and lists of these: what a table can hold."""
    if not all(value is None or isinstance(value, str | int | float | bool | Path | list | tuple) for value in column):
        return False
    return all(_is_plain(value) for value in column if isinstance(value, list | tuple))


def _are_files(texts: Sequence[str]) -> bool:
    some = texts[:: max(1, len(texts) // _LOOKED_AT)]
    return all(map(_FILE_NAME.fullmatch, some)) or any(map(_exists, some))


def _exists(text: str) -> bool:
    try:
        return 0 < len(text) < 4096 and Path(text).expanduser().exists()
    except (OSError, ValueError):
        return False


def path_column(frame: Frame) -> str | None:
    """The name of the column of paths, if there is one."""
    found = usual_column(frame, PATHS)
    return found if found is not None and any(isinstance(each, str | Path) for each in frame[found]) else None


def file_suffix(frame: Frame) -> str | None:
    """The suffix of the files that a frame lists; None if it lists none."""
    if (column := path_column(frame)) is None:
        return None
    first = next(str(each) for each in frame[column] if isinstance(each, str | Path))
    return Path(first).suffix.lower()


def is_texts(frame: Frame) -> bool:
    return path_column(frame) is None and any(isinstance(each, str) for column in frame.values() for each in column)


def write_frame(frame: Frame, *, relative: bool) -> tuple[Path, str | None]:
    """Write columns to the cache, under a name that their contents decide; the file, and the folder of its paths.

    Args:
        relative: paths are written relative to the folder that all have in common, so that samples have short names;
            else in full.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, root = dict(frame), None
    if (column := path_column(frame)) is not None:
        full = [None if each is None else os.path.abspath(Path(str(each)).expanduser()) for each in frame[column]]  # noqa: PTH100
        root = _common_folder([each for each in full if each is not None]) if relative else None
        columns[column] = [
            each if each is None or root is None else Path(os.path.relpath(each, root)).as_posix() for each in full
        ]
    content = json.dumps([columns, root], ensure_ascii=False, default=str)
    digest = hashlib.blake2b(content.encode(errors="surrogateescape"), digest_size=6).hexdigest()
    folder = cache_folder() / "tables"
    folder.mkdir(exist_ok=True)
    path = folder / f"{'texts' if column is None else 'files'}-{len(next(iter(columns.values())))}-{digest}.parquet"
    if not path.exists():
        plain = {name: [str(x) if isinstance(x, Path) else x for x in column] for name, column in columns.items()}
        with replacing(path) as fresh:
            pq.write_table(pa.table(plain), fresh)
    return path, root


def _common_folder(paths: Sequence[str]) -> str:
    folders = {os.path.dirname(path) for path in paths}  # noqa: PTH120
    try:
        return os.path.commonpath(folders)
    except ValueError:  # on two drives
        return os.path.dirname(paths[0])  # noqa: PTH120
