"""Images by number, from anywhere: `open_data` is the one door."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nearfar.data.cache import cache_folder
from nearfar.data.columns import nearest
from nearfar.data.dataset import ArrayDataset, Dataset, Skipped
from nearfar.data.fingerprint import fingerprint
from nearfar.data.groups import caption_ids, merged_ids, with_groups
from nearfar.data.loader import Batch, Loader
from nearfar.data.pack import Packed, pack
from nearfar.data.sources import Source, open_source
from nearfar.data.tables import READERS, path_and_rows
from nearfar.modalities.image.data.boxes import BoxedImages, Target, boxed_images, find_boxes
from nearfar.modalities.image.data.glyphs import Scenes, glyph_scenes, glyphs
from nearfar.modalities.image.data.icons import HELD_OUT, icons_source
from nearfar.modalities.image.data.shards import is_shards
from nearfar.modalities.image.data.stream import StreamDataset
from nearfar.modalities.image.data.torchvision_sets import NAMES, known_name, torchvision_source
from nearfar.modalities.series.data import SeriesDataset, has_series_splits, open_series
from nearfar.modalities.series.waves import waves
from nearfar.modalities.sound.data import SoundDataset, are_sounds, made_by_code, open_sounds
from nearfar.modalities.text.data import TextDataset, open_texts
from nearfar.modalities.text.tokenizer import Tokenizer

__all__ = [
    "ArrayDataset",
    "Batch",
    "BoxedImages",
    "Dataset",
    "Loader",
    "Packed",
    "Scenes",
    "SeriesDataset",
    "Skipped",
    "SoundDataset",
    "Source",
    "StreamDataset",
    "Target",
    "TextDataset",
    "Tokenizer",
    "are_sounds",
    "boxed_images",
    "caption_ids",
    "decoding_size",
    "find_boxes",
    "find_source",
    "fingerprint",
    "glyph_scenes",
    "glyphs",
    "has_series_splits",
    "has_splits",
    "icons_source",
    "is_files",
    "merged_ids",
    "open_data",
    "open_series",
    "open_sounds",
    "open_source",
    "open_texts",
    "pack",
    "torchvision_source",
    "waves",
    "with_groups",
]

DEFAULT_SIZE = 128  # of files, whose own sizes differ
MARGIN = 1.15  # a little more than the encoder needs, for the views that crop


def decoding_size(image_size: int) -> int:
    """Side at which files are decoded for an encoder: the same in training, evaluation, embedding and search.

    >>> decoding_size(32)
    37
    """
    return round(MARGIN * image_size)


def open_data(
    spec: str | Path,
    *,
    size: int | None = None,
    image_size: int | None = None,
    split: str | None = None,
    labels: bool | None = None,
    classes: Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    caption_column: str | None = None,
    captions: bool | None = None,
    groups: str | Path | None = None,
    root: Path | None = None,
    seed: int = 0,
    stream: bool = False,
    cache: Path | None = None,
    strict: bool = False,
    workers: int | None = None,
    progress: bool = True,
) -> Dataset:
    """The data set that `spec` names, ready to fetch from.

    Args:
        spec: "glyphs" or "glyphs:20000" (a fifth as many in the test split), "glyphs:compositional" (tested on
            combinations of letter and colour never trained on); "icons" or "icons:phosphor" (tested on that family,
            trained on the others); a folder of images; a .csv, .tsv, .jsonl or .parquet table, or some of its
            rows, "pairs.csv:vendor!=noto"; COCO's or Karpathy's captions in .json; shards: a folder, file or pattern
            such as "train-{000..127}.tar"; .npz or .npy arrays; or a data set of torchvision: "cifar10",
            "torchvision:STL10".
        size: side of the stored square image; the source's own where None, and for files, which have none, the
            `decoding_size` of the encoder, or 128.
        image_size: of the encoder that the images are for.
        split: "train", "test" or what the source knows; None is all of a folder, table or file, else "train".
        labels, classes, path_column, label_column, group_column, caption_column, captions: as in `open_source`.
        groups: a table of path and group, as in `with_groups`.
        root: where torchvision's data sets are, or the images that a file names.
        seed: of data made by code.
        stream: decode at every look and store nothing, but for the list of a shard's members.
        cache, strict, workers, progress: as in `pack`.
    """
    made = _made_by_code(spec)
    data: ArrayDataset | StreamDataset
    if made is not None:
        data = _open_glyphs(*made, size, split, seed, cache_folder(cache))
    else:
        source = find_source(
            spec,
            split=split,
            labels=labels,
            classes=classes,
            path_column=path_column,
            label_column=label_column,
            group_column=group_column,
            caption_column=caption_column,
            captions=captions,
            root=root,
            index=cache_folder(cache) / "shards",
        )
        if captions and source.captions is None:
            raise ValueError(f"{source.description} has no captions; give a table of path and caption")
        if strict and source.skipped:
            first = source.skipped[0]
            raise ValueError(f"{first.path} in {source.description} cannot be used: {first.reason}")
        chosen = size or source.size or (decoding_size(image_size) if image_size else DEFAULT_SIZE)
        if stream:
            data = StreamDataset(source, chosen, strict=strict, workers=workers)
        elif source.size == chosen and isinstance(source.images, np.ndarray):
            data = _in_memory(source)
        else:
            data = pack(source, size=chosen, cache=cache, strict=strict, workers=workers, progress=progress).dataset
    if labels is False:  # also where the source cannot leave them out
        data.labels, data.classes = None, None
    return data if groups is None else with_groups(data, groups)


def find_source(
    spec: str | Path,
    *,
    split: str | None = None,
    labels: bool | None = None,
    classes: Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    caption_column: str | None = None,
    captions: bool | None = None,
    root: Path | None = None,
    index: Path | None = None,
    seed: int = 0,
) -> Source:
    """What `open_data` would open, before anything is decoded; arguments as there, and `open_source`'s index."""
    text = str(spec)
    if (made := _made_by_code(spec)) is not None:
        drawn = _open_glyphs(*made, None, split, seed, cache_folder())
        return Source(
            description=f"{text} ({split or 'train'})",
            names=drawn.names,
            load=lambda: drawn.images[drawn.rows],
            version=str(seed),
            labels=drawn.labels,
            classes=drawn.classes,
            captions=drawn.captions,
            size=drawn.size,
        )
    if (icons := _icons(spec)) is not None:
        return icons_source(icons[1] or HELD_OUT, split=split)
    named = text.removeprefix("torchvision:")
    if named != text or (known_name(text) is not None and not Path(text).exists()):
        return torchvision_source(named, root=root, split=split)
    file, _ = path_and_rows(spec)
    if isinstance(spec, Path) or Path(file).expanduser().exists() or is_shards(spec):
        return open_source(
            spec,
            labels=labels,
            classes=classes,
            path_column=path_column,
            label_column=label_column,
            group_column=group_column,
            caption_column=caption_column,
            captions=captions,
            split=split,
            root=root,
            index=index,
        )
    if text.lower().startswith("glyphs"):
        raise ValueError(f"{text!r} names no glyphs, expected 'glyphs', 'glyphs:20000' or 'glyphs:compositional:20000'")
    close = (
        nearest(text, ["glyphs", "icons", *NAMES])
        or "; expected 'glyphs', 'icons', a name such as 'cifar10', or a path"
    )
    raise FileNotFoundError(f"{text!r} is neither a file or folder nor the name of a data set{close}")


def has_splits(spec: str | Path) -> bool:
    """Whether a name stands for data with splits "train" and "test"; of paths, NAME_TRAIN beside NAME_TEST alone.

    >>> [has_splits(spec) for spec in ("glyphs:500", "icons:phosphor", "cifar10", "waves", "photos/")]
    [True, True, True, True, False]
    """
    text = str(spec)
    if has_series_splits(spec):
        return True
    known = known_name(text) is not None and not Path(text).exists()
    drawn = _made_by_code(spec) is not None or made_by_code(spec) is not None
    return drawn or _icons(spec) is not None or text.startswith("torchvision:") or known


def is_files(spec: str | Path) -> bool:
    """Whether the images are files, or members of shards, of sizes of their own.

    >>> is_files("pairs.csv"), is_files("shards/{00..12}.tar"), is_files("glyphs"), is_files("images.npz")
    (True, True, False, False)
    """
    path = Path(path_and_rows(spec)[0]).expanduser()
    return path.is_dir() or path.suffix.lower() in (*READERS, ".json", ".tar")


def _icons(spec: str | Path) -> re.Match[str] | None:
    """A folder called icons wins over the name."""
    return None if Path(spec).exists() else re.fullmatch(r"icons(?::(.+))?", str(spec))


def _made_by_code(spec: str | Path) -> tuple[int, bool] | None:
    """How many glyphs are meant, and whether split by combination, or None where something else is."""
    made = re.fullmatch(r"glyphs(:compositional)?(?::(\d+))?", str(spec))
    return None if made is None else (int(made[2] or 10_000), made[1] is not None)


def _open_glyphs(
    n: int, compositional: bool, size: int | None, split: str | None, seed: int, cache: Path
) -> ArrayDataset:
    if size not in (None, 32):
        raise ValueError(f"size is {size}, but glyphs are drawn at 32; leave it out, and let the views resize")
    if split in (None, "train"):
        return glyphs(n, seed=seed, compositional=compositional, cache=cache)
    if split == "test":
        return glyphs(max(n // 5, 1), seed=seed, split="test", compositional=compositional, cache=cache)
    raise ValueError(f"glyphs have the splits 'train' and 'test', not {split!r}")


def _in_memory(source: Source) -> ArrayDataset:
    """Pictures that are an array of the right size already need no packing."""
    images = np.asarray(source.images)  # (N, S, S) or (N, S, S, C)
    if images.ndim == 3 or images.shape[3] == 1:
        images = np.repeat(images.reshape(*images.shape[:3], 1), 3, axis=3)
    elif images.shape[3] == 4:
        images = np.stack([source.read(i, images.shape[1]) for i in range(len(images))])
    return ArrayDataset(images, labels=source.labels, classes=source.classes, groups=source.groups, names=source.names)
