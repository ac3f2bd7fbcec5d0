"""Boxes as files state them: Pascal VOC's XML and COCO's JSON, and which parts a folder of them has."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from nearfar.data.sources import folder_source
from nearfar.modalities.image.data.decode import SUFFIXES
from nearfar.modalities.image.data.source import ImageSource
from nearfar.safe_read import LOG, read_json

SPLITS = ("train", "trainval", "test", "val", "valid", "validation")
ALL = "all"  # the one part of data without a split
VOC_IMAGES = ("JPEGImages", "images")
LARGEST_XML = 16 << 20  # bytes of one picture's boxes
SPLIT_WORD = re.compile(r"(?<![a-z])(trainval|train|validation|valid|val|test)(?![a-z])")
_OTHER_COCO = ("captions", "person_keypoints", "image_info", "panoptic", "stuff")  # COCO's files without plain boxes

Box = tuple[float, float, float, float]  # x1, y1, x2, y2 in pixels


@dataclass(frozen=True, eq=False)
class Annotated:
    """One picture and its boxes, as they are stated."""

    name: str
    picture: Path | NDArray[np.uint8]  # a file, or (H, W, 3)
    boxes: list[Box]
    kinds: list[str]  # class of each box
    ignored: list[bool]  # COCO's crowds and VOC's difficult: neither learned nor counted
    size: tuple[int, int] | None = None  # width and height, where they are stated


@dataclass
class Faults:
    """What was wrong, how often, and where first."""

    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, what: str, where: str) -> None:
        count, first = self.found.get(what, (0, where))
        self.found[what] = count + 1, first

    def notes(self, part: str) -> list[str]:
        """A line for each kind of fault.

        >>> faults = Faults()
        >>> faults.add("boxes without area, dropped", "7.xml")
        >>> faults.notes("test")
        ['test part: boxes without area, dropped: 1 (first: 7.xml)']
        """
        return [f"{part} part: {what}: {count} (first: {first})" for what, (count, first) in self.found.items()]


@dataclass(frozen=True, eq=False)
class Annotations:
    """The pictures of one part, in the order of their names.

    Attributes:
        classes: in the order in which they are declared, or sorted; some may have no box.
        mirrored: whether a mirrored picture could be one of them, too.
    """

    pictures: list[Annotated]
    classes: list[str]
    faults: Faults = field(default_factory=Faults)
    mirrored: bool = True


Reader = Callable[[], Annotations]


def find_annotations(spec: str | Path) -> dict[str, Reader]:
    """The parts of data with boxes, by name: "train", "test", ..., or "all"; none where there are no boxes.

    Args:
        spec: COCO's JSON file; a folder with such a file for each part (`train.json`, COCO's own
            `annotations/instances_train2017.json`, Roboflow's `train/_annotations.coco.json`); VOC's folder
            (Annotations, JPEGImages, ImageSets); or a folder with XML files beside their images, or one such folder
            for each part.
    """
    path = Path(spec).expanduser().absolute()
    if path.suffix.lower() == ".json" and path.is_file():
        return {ALL: lambda: read_coco(path)}
    if not path.is_dir():
        return {}
    return _coco_parts(path) or _voc_lists(path) or _voc_parts(path)


def _coco_parts(folder: Path) -> dict[str, Reader]:
    files = {}
    for name in SPLITS:
        inside = [file for file in sorted((folder / name).glob("*.json")) if _is_coco(file)]
        if inside:
            files[name] = inside[0]
    for file in () if files else sorted([*folder.glob("*.json"), *(folder / "annotations").glob("*.json")]):
        word = SPLIT_WORD.search(file.stem.lower())
        if not file.stem.startswith(_OTHER_COCO) and _is_coco(file):
            files.setdefault(word[0] if word else ALL, file)
    if len(files) > 1:
        files.pop(ALL, None)
    return {name: _later(read_coco, file) for name, file in files.items()}


def _voc_lists(folder: Path) -> dict[str, Reader]:
    """The parts that `ImageSets/Main` lists; files such as `cat_train.txt` are of one class, and left alone."""
    lists = {name: folder / "ImageSets" / "Main" / f"{name}.txt" for name in SPLITS}
    return {name: _later(read_voc, folder, file) for name, file in lists.items() if file.is_file()}


def _voc_parts(folder: Path) -> dict[str, Reader]:
    inside = {name: folder / name for name in SPLITS if _has_xml(folder / name)}
    if "train" in inside and len(inside) > 1:
        return {name: _later(read_voc, part) for name, part in inside.items()}
    return {ALL: _later(read_voc, folder)} if _has_xml(folder) else {}


def _later(read: Callable[..., Annotations], *arguments: Path) -> Reader:
    return lambda: read(*arguments)


def _has_xml(folder: Path) -> bool:
    return folder.is_dir() and next(_xml_files(folder), None) is not None


def _xml_files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*.xml") if not file.name.startswith("."))


def _is_coco(file: Path) -> bool:
    """Whether a JSON file speaks of images and annotations: a folder may hold others. A broken one may be meant."""
    try:
        content = file.read_bytes()
    except OSError:
        return False
    return b'"images"' in content and b'"annotations"' in content


def read_voc(folder: Path, listed: Path | None = None) -> Annotations:
    """The pictures below a folder that have an XML file, or those that a list names.

    Coordinates are taken as they stand, as the tools of today write them; VOC's own begin with 1, which moves every
    box by a pixel.

    Args:
        folder: XML files beside the images, or in `Annotations` with the images in `JPEGImages`.
        listed: a file with the name of a picture, without its suffix, in each line.
    """
    faults, kinds, pictures = Faults(), set(), []
    images = list(folder_source(ImageSource, folder, what="image", suffixes=SUFFIXES).paths or [])
    by_place = {path.with_suffix(""): path for path in images}
    by_name: dict[str, list[Path]] = {}
    for path in images:
        by_name.setdefault(path.stem, []).append(path)
    if listed is None:
        files = sorted(_xml_files(folder))
        described = {file.stem for file in files}
        missing = [path for path in images if path.stem not in described]
    else:
        stems = [line.split()[0] for line in listed.read_text(encoding="utf-8").splitlines() if line.strip()]
        files = [folder / "Annotations" / f"{Path(stem).name}.xml" for stem in stems]
        missing = [file for file in files if not file.is_file()]
        files = [file for file in files if file.is_file()]
    for path in missing:
        faults.add("images without an annotation file, left out", path.relative_to(folder).as_posix())
    for file in files:
        name = file.relative_to(folder).as_posix()
        try:
            stated = _parsed(file)
        except (ElementTree.ParseError, ValueError, OSError) as error:
            faults.add("annotation files that cannot be read, left out", f"{name}: {' '.join(str(error).split())}")
            continue
        beside = [by_place.get((file.parent.parent / where / file.name).with_suffix("")) for where in VOC_IMAGES]
        alike = by_name.get(file.stem) or by_name.get(_stated_stem(stated)) or []
        image = next((p for p in [by_place.get(file.with_suffix("")), *beside] if p), alike[0] if alike else None)
        if image is None:
            faults.add("annotations whose image is not there, left out", name)
            continue
        pictures.append(_voc_picture(stated, image, name, faults))
        kinds |= set(pictures[-1].kinds)
    return Annotations(pictures, sorted(kinds), faults)


def _parsed(file: Path) -> ElementTree.Element:
    """The root of an XML file; entities, which can grow without bound, are refused."""
    if file.stat().st_size > LARGEST_XML:
        raise ValueError(f"more than {LARGEST_XML >> 20} MB")
    content = file.read_bytes()
    plain = content.replace(b"\0", b"")  # UTF-16 and UTF-32, too
    if b"<!DOCTYPE" in plain or b"<!ENTITY" in plain:
        raise ValueError("it declares entities")
    return ElementTree.fromstring(content)


def _stated_stem(root: ElementTree.Element) -> str:
    return Path((root.findtext("filename") or "").replace("\\", "/")).stem


def _voc_picture(root: ElementTree.Element, image: Path, name: str, faults: Faults) -> Annotated:
    boxes: list[Box] = []
    kinds, ignored = [], []
    for thing in root.iter("object"):
        kind = (thing.findtext("name") or "").strip()
        if not kind:
            faults.add("boxes without a class, dropped", name)
            continue
        boxes.append(_numbers([thing.findtext(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]))
        kinds.append(kind)
        ignored.append((thing.findtext("difficult") or "0").strip() == "1")
    size = _size(root.findtext("size/width"), root.findtext("size/height"))
    return Annotated(name, image, boxes, kinds, ignored, size)


def read_coco(file: Path) -> Annotations:
    """The pictures that a JSON file lists, beside it, in `images`, or in the folder that its part has.

    Raises:
        ValueError: where the file as a whole cannot be read.
    """
    faults, content = Faults(), _json(file)
    names = {kind["id"]: str(kind["name"]) for kind in _objects(content, "categories", ("id", "name"), faults)}
    pictures: dict[Any, Annotated] = {}
    folders = list(_image_folders(file))
    for entry in _objects(content, "images", ("id", "file_name"), faults):
        name = str(entry["file_name"])
        image = next((path for folder in folders if (path := _below(folder, name)) is not None), None)
        if image is None:
            faults.add("listed images that are not there, left out", name)
            continue
        size = _size(entry.get("width"), entry.get("height"))
        pictures[entry["id"]] = Annotated(name, image, [], [], [], size)
    listed = {entry["id"] for entry in content["images"] if isinstance(entry, Mapping) and _known(entry, "id")}
    for entry in _objects(content, "annotations", ("image_id", "category_id"), faults):
        picture, kind = pictures.get(entry["image_id"]), names.get(entry["category_id"])
        if picture is None:
            if entry["image_id"] not in listed:
                faults.add("boxes of an image that is not listed, dropped", f"image {entry['image_id']!r}")
        elif kind is None:
            faults.add("boxes of a class that is not listed, dropped", f"class {entry['category_id']!r}")
        else:
            x, y, width, height = _numbers(entry.get("bbox"))
            picture.boxes.append((x, y, x + width, y + height))
            picture.kinds.append(kind)
            picture.ignored.append(bool(entry.get("iscrowd", 0)))
    ordered = sorted(pictures.values(), key=lambda picture: picture.name)
    return Annotations(ordered, list(dict.fromkeys(names.values())), faults)


def _json(file: Path) -> dict[str, Any]:
    try:
        content = read_json(file, LOG)
    except (ValueError, RecursionError, OSError) as error:
        raise ValueError(f"{file} is not JSON ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict) or not all(isinstance(content.get(k), list) for k in ("images", "annotations")):
        raise ValueError(
            f"{file} is not a COCO file, expected an object with lists of images, annotations and categories"
        )
    return content


def _objects(content: dict[str, Any], name: str, keys: Sequence[str], faults: Faults) -> Iterator[dict[str, Any]]:
    """The entries of a list that have these keys."""
    entries = content.get(name)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and all(_known(entry, key) for key in keys):
            yield entry
        else:
            faults.add(f"{name} without {' or '.join(keys)}, left out", " ".join(str(entry).split())[:40])


def _known(entry: Mapping[str, Any], key: str) -> bool:
    return isinstance(entry.get(key), int | str)


def _image_folders(file: Path) -> Iterator[Path]:
    """Where the images of a JSON file may be, the likeliest first."""
    for folder in (file.parent, file.parent.parent) if file.parent.name == "annotations" else (file.parent,):
        stem = file.stem.removeprefix("instances_")
        yield from (folder, folder / "images", folder / stem, folder / "images" / stem)


def _below(folder: Path, name: str) -> Path | None:
    """The file of that name below a folder; a name that leads out is refused."""
    path = folder / name.replace("\\", "/")
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return None
    return path if path.resolve().is_relative_to(folder.resolve()) else None


def _numbers(values: object) -> Box:
    """Four numbers; NaN for each that is none."""
    given = values if isinstance(values, list) and len(values) == 4 else [None] * 4
    x1, y1, x2, y2 = (_number(value) for value in given)
    return x1, y1, x2, y2


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, str | int | float) else float("nan")
    except (ValueError, OverflowError):
        return float("nan")


def _size(width: object, height: object) -> tuple[int, int] | None:
    w, h = _number(width), _number(height)
    return (int(w), int(h)) if 0 < w < 1e6 and 0 < h < 1e6 else None
