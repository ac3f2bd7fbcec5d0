"""The picture behind a row of embeddings, by its name."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from nearfar.modalities.image.data.decode import decode, why
from nearfar.modalities.image.data.opening import find_source

GRAY = 200


def thumbnails(
    names: Sequence[str], data: str | None, *, size: int, split: str | None = None
) -> tuple[list[NDArray[np.uint8]], list[str]]:
    """The pictures with these names in a data set, and why some could not be had: those are an even gray.

    A name that leads out of the folder of the data is refused: a file of embeddings may come from anyone.

    Args:
        names: K texts, as `Embeddings.names` gives them.
        data: as in `open_data`; None where it is not known.
        size: side of each picture.
        split: as in `open_data`.

    Returns:
        K (size, size, 3), and a line for each that is missing.

    Raises:
        ValueError: where the data cannot be found.
    """
    blank = np.full((size, size, 3), GRAY, np.uint8)
    if data is None:
        raise ValueError("the pictures cannot be shown: the file does not say where they are; give --data")
    folder = Path(data).expanduser()
    pictures, missing = [], []
    if folder.is_dir() and split is None:
        for name in names:
            try:
                pictures.append(decode(inside(folder, name), size))
            except Exception as error:  # Pillow raises of every kind on broken files
                pictures.append(blank)
                missing.append(f"{name}: {why(error)}")
        return pictures, missing
    try:
        source = find_source(data, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"the pictures cannot be shown: {error}; give --data") from None
    row_of = {name: row for row, name in enumerate(source.names)}
    for name in names:
        try:
            pictures.append(source.read(row_of[name], size))
        except KeyError:
            pictures.append(blank)
            missing.append(f"{name}: not in {source.description}")
        except Exception as error:
            pictures.append(blank)
            missing.append(f"{name}: {why(error)}")
    return pictures, missing


def inside(folder: Path, name: str) -> Path:
    """The file of that name in the folder; a name that leads out of it is an error.

    >>> inside(Path("photos"), "a/b.jpg").as_posix()
    'photos/a/b.jpg'
    """
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or "\\" in name or "\0" in name or Path(name).drive:
        raise ValueError("the name leads out of the folder of the data, expected one below it")
    return folder / name
