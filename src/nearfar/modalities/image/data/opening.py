"""Images by number, from anywhere: `open_images` is the one door."""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearfar.data import tables
from nearfar.data.cache import cache_folder
from nearfar.data.columns import nearest
from nearfar.data.config import ReadConfig, read_config
from nearfar.data.dataset import ArrayDataset
from nearfar.data.groups import with_groups
from nearfar.data.rows import Wanted
from nearfar.data.sources import built_in_split, folder_source, from_samples
from nearfar.data.tables import READERS, path_and_rows
from nearfar.modalities.image.data.arrays import array_source
from nearfar.modalities.image.data.caption_json import read_captions
from nearfar.modalities.image.data.decode import SUFFIXES, UNREAD
from nearfar.modalities.image.data.glyphs import glyphs
from nearfar.modalities.image.data.hugging_face import image_tables, table_images
from nearfar.modalities.image.data.icons import HELD_OUT, icons_source
from nearfar.modalities.image.data.pack import pack_images
from nearfar.modalities.image.data.python_images import decoded_in_memory, object_source
from nearfar.modalities.image.data.shards import is_shards, shard_source
from nearfar.modalities.image.data.source import ImageSource
from nearfar.modalities.image.data.stream import StreamDataset
from nearfar.modalities.image.data.torchvision_sets import NAMES, known_name, torchvision_source
from nearfar.python_objects import is_object
from nearfar.safe_read import regular

DEFAULT_SIZE = 128  # of files, whose own sizes differ
_LOOKED_AT = 200  # files of a folder
MARGIN = 1.15  # a little more than the encoder needs, for the views that crop


def decoding_size(image_size: int) -> int:
    """Side at which files are decoded for an encoder: the same in training, evaluation, embedding and search.

    >>> decoding_size(32)
    37
    """
    return round(MARGIN * image_size)


def open_images(
    spec: str | Path,
    read: ReadConfig | None = None,
    *,
    split: str | None = None,
    image_size: int | None = None,
    classes: Sequence[str] | None = None,
    captions: bool | None = None,
    seed: int = 0,
    cache: Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> ArrayDataset | StreamDataset:
    """The images that `spec` names, ready to fetch from.

    Args:
        spec: "glyphs" or "glyphs:20000" (a fifth as many in the test split), "glyphs:compositional" (tested on
            combinations of letter and color never trained on); "icons" or "icons:phosphor" (tested on that family,
            trained on the others); a folder of images; a .csv, .tsv, .jsonl or .parquet table, or some of its
            rows, "pairs.csv:vendor!=noto"; COCO's or Karpathy's captions in .json; shards: a folder, file or pattern
            such as "train-{000..127}.tar"; .npz or .npy arrays; or a data set of torchvision: "cifar10",
            "torchvision:STL10".
        read: how to read, as in a run's configuration; `settings` are its fields as keywords: labels=True. Without a
            stored_size, images keep their own if they are arrays; files get the `decoding_size` of the encoder.
        split: "train", "test" or what the source knows; None is all of a folder, table or file, else "train".
        image_size: of the encoder that the images are for.
        classes: names of the labels in the order to number them, such as those of the training data.
        captions: whether to read captions; None reads them if there are some, True makes their absence an error.
        seed: of data made by code.
        cache, progress: as in `pack_samples`.
    """
    read = read_config(read, settings)
    if _glyphs_named(spec) is not None and read.stored_size not in (None, 32):
        raise ValueError(f"stored_size is {read.stored_size}, but glyphs are drawn at 32; leave it out: views resize")
    source = find_images(
        spec, read, split=split, classes=classes, captions=captions, cache=cache_folder(cache), seed=seed
    )
    data = _decoded(source, read, image_size, captions, cache, progress)
    if read.labels is False:  # also where the source cannot leave them out
        data.labels, data.classes = None, None
    return data if read.groups_file is None else with_groups(data, read.groups_file)


def _decoded(
    source: ImageSource,
    read: ReadConfig,
    image_size: int | None,
    captions: bool | None,
    cache: Path | None,
    progress: bool,
) -> ArrayDataset | StreamDataset:
    if captions and source.captions is None:
        raise ValueError(f"{source.description} has no captions; give a table of path and caption")
    if read.strict and source.skipped:
        first = source.skipped[0]
        raise ValueError(f"{first.path} in {source.description} cannot be used: {first.reason}")
    size = read.stored_size or source.size or (decoding_size(image_size) if image_size else DEFAULT_SIZE)
    if source.size == size and isinstance(source.items, np.ndarray):
        return _in_memory(source)
    if source.transient:
        return decoded_in_memory(source, size, strict=read.strict, workers=read.workers, stream=read.stream)
    small = source.size is not None and source.size < size and isinstance(source.items, np.ndarray)
    if read.stream or small:  # enlarged, arrays would fill disk or memory; packing files leaves out the broken
        return StreamDataset(source, size, strict=read.strict, workers=read.workers)
    return pack_images(source, size=size, cache=cache, strict=read.strict, workers=read.workers, progress=progress)


def find_images(
    spec: str | Path,
    read: ReadConfig | None = None,
    *,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    captions: bool | None = None,
    cache: Path | None = None,
    seed: int = 0,
    **settings: Any,
) -> ImageSource:
    """What `open_images` would open, before anything is decoded; arguments as there.

    Args:
        cache: folder for built-in images, and for a list of the members of shards, of which None keeps none.
    """
    read, text = read_config(read, settings), str(spec)
    if is_object(text):
        return object_source(text, read, split=split, classes=classes)
    if (made := _glyphs_named(spec)) is not None:
        count, part = built_in_split("glyphs", made[0], split)
        drawn = glyphs(count, seed=seed, split=part, compositional=made[1], cache=cache or cache_folder())
        return ImageSource(
            description=f"{text} ({part})",
            names=drawn.names,
            load=lambda: drawn.images,
            version=str(seed),
            labels=drawn.labels,
            classes=drawn.classes,
            captions=drawn.captions,
            size=drawn.size,
        )
    if (icons := _icons_named(spec)) is not None:
        return icons_source(icons[1] or HELD_OUT, split=split)
    named = text.removeprefix("torchvision:")
    if named != text or (known_name(text) is not None and not Path(text).exists()):
        return torchvision_source(named, root=read.folder, split=split)
    file, _ = path_and_rows(spec)
    if isinstance(spec, Path) or Path(file).expanduser().exists() or is_shards(spec):
        index = None if cache is None else cache / "shards"
        return image_files(spec, read, split=split, classes=classes, captions=captions, index=index)
    if text.lower().startswith("glyphs"):
        raise ValueError(f"{text!r} names no glyphs, expected 'glyphs', 'glyphs:20000' or 'glyphs:compositional:20000'")
    close = (
        nearest(text, ["glyphs", "icons", *NAMES])
        or "; expected 'glyphs', 'icons', a name such as 'cifar10', or a path"
    )
    raise FileNotFoundError(f"{text!r} is neither a file or folder nor the name of a data set{close}")


def image_files(
    spec: str | Path,
    read: ReadConfig | None = None,
    *,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    captions: bool | None = None,
    index: Path | None = None,
    **settings: Any,
) -> ImageSource:
    """The images at a path: a folder, a table (.csv, .tsv, .jsonl, .parquet), COCO's or Karpathy's captions (.json),
    shards (.tar, a pattern or a folder of them), or arrays (.npz, .npy).

    Several rows of a table with one path are one image with several captions where it has captions; so is a list in a
    cell. A caption that is empty, not UTF-8 or too long is left out and listed in `skipped`.

    Args:
        spec: the path; a table's may end in ":column=value" or ":column!=value", which means those rows alone.
        split: a sub-folder, a value in the table's column "split" ("vendor=noto" and "vendor!=noto" ask another), or
            arrays named after it; None takes all, and what the path itself says goes first.
        index: folder to keep a list of the members of shards in.
        read, classes, captions: as in `find_images`. The labels of a folder are read only if
            `read.labels` says so: True, "top", "leaf" or "path".
    """
    read = read_config(read, settings)
    spec, rows = path_and_rows(spec)
    path, split = Path(spec).expanduser().absolute(), rows or split
    wanted = Wanted.of(read, split=split, classes=classes, captions=captions)
    if is_shards(path):
        return shard_source(path, wanted, index)
    if files := image_tables(path):
        return table_images(path, files, wanted, read.folder)
    if path.is_dir():
        return folder_source(
            ImageSource,
            path,
            what="image",
            suffixes=SUFFIXES,
            unread=UNREAD,
            labels=read.labels or False,
            classes=classes,
            split=split,
        )
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {str(spec)!r}")
    regular(path)
    kind, part = path.suffix.lower(), f" ({split})" if split else ""
    if kind in READERS:
        found = tables.read(path, wanted)
        folder = read.folder or path.parent
        return from_samples(ImageSource, f"table {path}{part}", found, paths=[folder / name for name in found.names])
    if kind == ".json":
        found, paths = read_captions(path, wanted, read.folder)
        return from_samples(ImageSource, f"captions {path}{part}", found, paths=paths)
    if kind in (".npz", ".npy"):
        return array_source(path, labels=wanted.labels, classes=classes, split=split)
    if kind in SUFFIXES:
        raise ValueError(f"{str(spec)!r} is one image, expected a folder of images: give its folder")
    known = ", ".join([*READERS, ".json", ".tar", ".npz", ".npy"])
    raise ValueError(f"{str(spec)!r} is a {kind or 'file without a suffix'}, expected a folder or one of {known}")


def has_own_splits(spec: str | Path) -> bool:
    """Whether a name stands for images with the splits "train" and "test".

    >>> [has_own_splits(spec) for spec in ("glyphs:500", "icons:phosphor", "cifar10", "photos/")]
    [True, True, True, False]
    """
    text = str(spec)
    known = known_name(text) is not None and not Path(text).exists()
    return _glyphs_named(spec) is not None or _icons_named(spec) is not None or text.startswith("torchvision:") or known


def is_glyphs(spec: str | Path) -> bool:
    """Whether glyphs are meant, which have one size."""
    return _glyphs_named(spec) is not None


def is_files(spec: str | Path) -> bool:
    """Whether the images are files, or members of shards, of sizes of their own.

    >>> is_files("pairs.csv"), is_files("shards/{00..12}.tar"), is_files("glyphs"), is_files("images.npz")
    (True, True, False, False)
    """
    path = Path(path_and_rows(spec)[0]).expanduser()
    return path.is_dir() or path.suffix.lower() in (*READERS, ".json", ".tar")


def _icons_named(spec: str | Path) -> re.Match[str] | None:
    """A folder called icons wins over the name."""
    return None if Path(spec).exists() else re.fullmatch(r"icons(?::(.+))?", str(spec))


def _glyphs_named(spec: str | Path) -> tuple[int, bool] | None:
    """How many glyphs are meant, and whether split by combination, or None where something else is."""
    made = re.fullmatch(r"glyphs(:compositional)?(?::(\d+))?", str(spec))
    return None if made is None else (int(made[2] or 10_000), made[1] is not None)


def _in_memory(source: ImageSource) -> ArrayDataset:
    """Pictures that are an array of the right size already need no packing."""
    images = np.asarray(source.items)  # (N, S, S) or (N, S, S, C)
    if images.ndim == 3 or images.shape[3] == 1:
        images = np.repeat(images.reshape(*images.shape[:3], 1), 3, axis=3)
    elif images.shape[3] == 4:
        images = np.stack([source.read(i, images.shape[1]) for i in range(len(images))])
    return ArrayDataset(images, **source.facts(torch.arange(len(source))))


def are_pictures(spec: str | Path) -> bool:
    """Whether a path is a folder with more pictures than anything else."""
    folder = Path(spec).expanduser()
    if not folder.is_dir():
        return False
    found = [file.suffix.lower() in SUFFIXES for file in islice(folder.rglob("*.*"), _LOOKED_AT) if file.is_file()]
    return sum(found) > len(found) / 2
