"""Captions in one JSON file: COCO's `captions_train2017.json`, Karpathy's `dataset_flickr30k.json`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from nearfar.data.columns import nearest
from nearfar.data.dataset import Skipped
from nearfar.data.rows import RowSamples, Wanted, samples
from nearfar.data.sources import is_folder
from nearfar.data.tables import from_records, read_text
from nearfar.modalities.image.data.annotations import SPLIT_WORD

Record = dict[str, object]

PREFIXES = ("captions_", "dataset_")
LOOKED_FOR = 100  # listed images, by which the folder that has them is known


def read_captions(path: Path, wanted: Wanted, root: Path | None = None) -> tuple[RowSamples, list[Path]]:
    """The samples and where their images should be; which are not there shows when they are decoded.

    Args:
        path: COCO's form, {"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}, or Karpathy's,
            {"images": [{"filename", "sentences": [{"raw"}], "split"}]}.
        wanted: its split is Karpathy's, or another file of COCO's: "val" beside `captions_train2017.json` is
            `captions_val2017.json`.
        root: folder of the images; None looks beside the file and in the folders there.
    """
    path = path if wanted.split is None else _file_of_split(path, wanted.split)
    content = _content(path)
    lost: list[Skipped] = []
    if any("sentences" in entry for entry in content["images"]):
        records = list(_karpathy(content["images"]))
    else:
        wanted = replace(wanted, split=None)  # the file is the split
        records, lost = _coco(content)
    if not records:
        raise ValueError(f"{path} lists no images with captions; boxes are for `nearfar evaluate --protocol detection`")
    found = samples(from_records(records), replace(wanted, path="path", caption="captions"), str(path))
    found = replace(found, skipped=[*lost, *found.skipped])
    folder, prefixed = _image_folder(path, [records[row] for row in found.rows], root)
    names = [_name(records[row], prefixed) for row in found.rows]
    return replace(found, names=names), [folder / name for name in names]


def _content(path: Path) -> dict[str, list[Record]]:
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise ValueError(f"{path} has no list of images, expected captions as COCO or Karpathy write them")
    lists = {name: content.get(name) for name in ("images", "annotations")}
    return {
        name: [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        for name, entries in lists.items()
    }


def _karpathy(images: Sequence[Record]) -> Iterator[Record]:
    for entry in images:
        stated = entry.get("sentences")
        sentences = [s.get("raw") if isinstance(s, dict) else s for s in stated] if isinstance(stated, list) else []
        folder, name = entry.get("filepath"), entry.get("filename")
        path = f"{folder}/{name}" if folder and name else name
        yield {"path": path, "file": name, "folder": folder, "captions": sentences, "split": entry.get("split")}


def _coco(content: dict[str, list[Record]]) -> tuple[list[Record], list[Skipped]]:
    """A record for each listed image, and the captions of others."""
    captions: dict[object, list[object]] = {}
    for entry in content["annotations"]:
        if "caption" in entry and isinstance(entry.get("image_id"), int | str):
            captions.setdefault(entry["image_id"], []).append(entry["caption"])
    records: list[Record] = []
    for entry in content["images"] if captions else ():
        number = entry.get("id")
        told = captions.pop(number, []) if isinstance(number, int | str) else []
        records.append({"path": entry.get("file_name"), "file": entry.get("file_name"), "captions": told})
    return records, [Skipped(f"image {number}", "it has captions, but is not listed") for number in captions]


def _file_of_split(path: Path, split: str) -> Path:
    """COCO has a file for each split, and says which in its name; other files know their splits themselves."""
    word = SPLIT_WORD.search(path.stem.lower())
    if word is None or word[0] == split:
        return path
    others = sorted(path.parent.glob(f"{path.stem[: word.start()]}*{path.suffix}"))
    words = {found[0]: other for other in others if (found := SPLIT_WORD.search(other.stem.lower()))}
    if split not in words:
        raise ValueError(
            f"{path} is of the split {word[0]!r}, and there is none of {split!r} beside it{nearest(split, list(words))}"
        )
    return words[split]


def _image_folder(path: Path, records: Sequence[Record], root: Path | None) -> tuple[Path, bool]:
    """The folder that has some of the first images, and whether their stated folder is below it."""
    looked_in = [root.expanduser().absolute()] if root is not None else list(_folders(path))
    for prefixed in (True, False):
        names = [_name(record, prefixed) for record in records[:LOOKED_FOR]]
        for folder in looked_in:
            if any((folder / name).is_file() for name in names):
                return folder, prefixed
    where = ", ".join(str(folder) for folder in looked_in[:4])
    raise ValueError(f"{path} lists {records[0]['file']} and others that are not in {where}; give their folder as root")


def _folders(path: Path) -> Iterator[Path]:
    """Where the images may be, the likeliest first."""
    parents = [path.parent.parent, path.parent] if path.parent.name == "annotations" else [path.parent]
    stem = path.stem
    for prefix in PREFIXES:
        stem = stem.removeprefix(prefix)
    for parent in parents:
        yield from (parent, parent / "images", parent / stem, parent / "images" / stem)
        yield from sorted(entry for entry in parent.iterdir() if is_folder(entry) and not entry.name.startswith("."))


def _name(record: Record, prefixed: bool) -> str:
    """The path below the folder; one that leads out of it is cut to its last part.

    >>> _name({"file": "a.jpg", "folder": "val2014"}, True), _name({"file": "../../a.jpg"}, True)
    ('val2014/a.jpg', 'a.jpg')
    """
    stated = str(record["file"]).replace("\\", "/")
    folder = record.get("folder")
    parts = PurePosixPath(f"{folder}/{stated}" if prefixed and isinstance(folder, str) and folder else stated)
    return parts.name if parts.is_absolute() or ".." in parts.parts else parts.as_posix()
