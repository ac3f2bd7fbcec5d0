"""Shards as WebDataset has them: tar files whose members of equal stem are one sample."""

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import torch

from nearfar.data.cache import replacing
from nearfar.data.columns import nearest
from nearfar.data.dataset import Skipped
from nearfar.data.retry import retried
from nearfar.data.rows import CAPTIONS, GROUPS, LABELS, Wanted, samples
from nearfar.data.sources import from_samples
from nearfar.data.tables import from_records
from nearfar.data.tar_reader import Members, Place
from nearfar.modalities.image.data.annotations import SPLITS
from nearfar.modalities.image.data.decode import SUFFIXES
from nearfar.modalities.image.data.source import ImageSource
from nearfar.safe_read import read_json

TEXTS = {"txt": "caption", "text": "caption", "caption": "caption", "cls": "label"}  # what a member states, by suffix
LARGEST_TEXT = 1 << 20  # bytes of a member that is not a picture
LARGEST_PICTURE = 1 << 29  # bytes of one that is
MOST_KEYS = 1000  # in all the .json of a data set; of more, those that mean something here
MOST_SHARDS = 1_000_000  # that a pattern may name
INDEX = "index.json"  # beside shards that `write_shards` made: how many samples each has
BLOCK = 512  # bytes of a tar's header
VERSION = 2  # of the index; raise it when the same shard is read otherwise


@dataclass(slots=True)
class Sample:
    """What the members of one stem state."""

    name: str
    picture: Place | None = None
    stated: dict[str, object] = field(default_factory=dict)


def shard_source(spec: str | Path, wanted: Wanted, index: Path | None = None) -> ImageSource:
    """The samples of a folder of .tar files, of one, or of a pattern such as `data/train-{000..127}.tar`.

    A sample is a picture, its caption (`.txt`, or a `.json` with one of the usual keys or `wanted.caption`) and its
    label (`.cls`, or of the `.json`). What cannot be read is left out and listed; a shard that is cut short keeps
    what came before.

    Args:
        spec: folder, file or pattern; a split is a sub-folder or a word in the names of the files.
        index: folder to keep a list of each shard's members in, so that the next look reads no headers.
    """
    files = shard_files(spec, wanted.split)
    found: list[Sample] = []
    skipped: list[Skipped] = []
    above = os.path.commonpath([file.absolute().parent for file in files])
    counts: dict[Path, int] = {}
    for file in files:
        inside, faults = _indexed(file.absolute(), file.absolute().relative_to(above).as_posix(), index)
        found += inside
        skipped += faults
        counts[file.absolute()] = len(inside)
    skipped = with_losses(skipped, counts, whole=Path(spec).expanduser().is_dir() and wanted.split is None)
    pictures = [sample.picture for sample in found if sample.picture is not None]
    skipped += [Skipped(sample.name, "it has no picture") for sample in found if sample.picture is None]
    if not pictures:
        first = f"; the first, {skipped[0].path}: {skipped[0].reason}" if skipped else ""
        raise ValueError(f"there is no sample in {len(files)} shards of {spec}{first}")
    records = [{**sample.stated, "__path__": sample.name} for sample in found if sample.picture is not None]
    if len({name for record in records for name in record}) > MOST_KEYS:
        known = {"__path__", wanted.label, wanted.group, wanted.caption, *LABELS, *GROUPS, *CAPTIONS}
        records = [{name: value for name, value in record.items() if name in known} for record in records]
    classes = wanted.classes or _classes(counts, {record.get("label") for record in records})
    kept = samples(from_records(records), replace(wanted, split=None, path="__path__", classes=classes), f"{spec}")
    places = [pictures[row] for row in kept.rows]
    number_of = {file: number for number, file in enumerate(counts)}
    return from_samples(
        ImageSource,
        f"shards {_absolute(spec)}" + (f" ({wanted.split})" if wanted.split else ""),
        replace(kept, skipped=[*skipped, *kept.skipped]),
        load=lambda: Members(places),
        versions=[f"{place.state} {place.start} {place.size}" for place in places],
        parts=torch.tensor([number_of[place.shard] for place in places], dtype=torch.int32),
    )


def _classes(files: Iterable[Path], labels: set[object]) -> list[str] | None:
    """The names in the lists beside the shards, in their order: a class of which there is no sample has its number."""
    found: list[list[str]] = []
    for folder in dict.fromkeys(file.parent for file in files):
        with suppress(OSError, ValueError, TypeError, KeyError):
            found.append([str(name) for name in read_json(folder / INDEX)["classes"]])
    same = bool(found) and all(names == found[0] for names in found)
    return found[0] if same and {str(label) for label in labels if label is not None} <= set(found[0]) else None


def with_losses(skipped: Sequence[Skipped], counts: dict[Path, int], *, whole: bool) -> list[Skipped]:
    """What is known to be wrong, and what the lists beside the shards name and is not there, one line for a shard.

    Args:
        counts: samples found in each file.
        whole: every shard of the folders should be among them.
    """
    shards = {str(file) for file in counts}
    told = {s.path: replace(s, samples=None) for s in skipped if s.path in shards}
    for folder in dict.fromkeys(file.parent for file in counts):
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):  # no list, or another program's
            for entry in read_json(folder / INDEX)["shards"]:
                file, stated = folder / str(entry["file"]), int(entry["samples"])
                there = counts.get(file, 0 if whole and not file.exists() else stated)
                if there < stated:
                    why = told[str(file)].reason + "; " if str(file) in told else ""
                    lost = f"{stated - there:,} of the {stated:,} samples that {INDEX} names are gone"
                    told[str(file)] = Skipped(str(file), why + lost, stated - there)
                elif str(file) in told:
                    told[str(file)] = replace(told[str(file)], samples=0)  # damaged behind its last sample
    return [*told.values(), *(s for s in skipped if s.path not in shards)]


def is_shards(spec: str | Path) -> bool:
    """Whether a spec is a tar file, a pattern of them, or a folder that has some and no pictures.

    >>> is_shards("data/train-{000..127}.tar"), is_shards("photos/")
    (True, False)
    """
    folder = Path(spec).expanduser()
    if not folder.is_dir():
        return str(spec).lower().endswith(".tar")
    found = False
    for entry in folder.iterdir():
        if entry.suffix.lower() in SUFFIXES:
            return False
        found = found or entry.suffix.lower() == ".tar"
    return found or any(next((folder / split).glob("*.tar"), None) is not None for split in SPLITS)


def shard_files(spec: str | Path, split: str | None = None) -> list[Path]:
    """The tar files that a spec names, sorted, those of a split alone."""
    folder = Path(spec).expanduser()
    if folder.is_dir():
        places = [folder, *(folder / split for split in SPLITS)]
        files = sorted(file for place in places for file in place.glob("*.tar") if not file.name.startswith("."))
    else:
        patterns = list(islice(expanded(str(folder)), MOST_SHARDS + 1))
        if len(patterns) > MOST_SHARDS:
            raise ValueError(f"{str(spec)!r} names more than {MOST_SHARDS:,} shards; is the pattern right?")
        files = [file for pattern in patterns for file in _matching(pattern)]
    if not files:
        raise FileNotFoundError(f"there is no .tar file {str(spec)!r}; is the pattern right?")
    if split is None:
        return files
    words = {file: [file.parent.name, *re.findall("[a-z]+", file.stem.lower())] for file in files}
    chosen = [file for file in files if split in words[file]]
    if not chosen:
        known = sorted({word for file in files for word in words[file]})
        raise ValueError(f"none of the {len(files)} shards of {spec} is named after {split!r}{nearest(split, known)}")
    return chosen


def expanded(pattern: str) -> Iterator[str]:
    """Braces as a shell writes them out.

    >>> list(expanded("{train,val}-{08..10}.tar"))[1:4]
    ['train-09.tar', 'train-10.tar', 'val-08.tar']
    """
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        yield pattern
        return
    span = re.fullmatch(r"(\d+)\.\.(\d+)", found[1])
    if span is None:
        choices: Iterable[str] = found[1].split(",")
    else:
        first, last = int(span[1]), int(span[2])
        step = 1 if last >= first else -1
        choices = (f"{number:0{len(span[1])}d}" for number in range(first, last + step, step))
    for choice in choices:
        yield from expanded(pattern[: found.start()] + choice + pattern[found.end() :])


def _matching(pattern: str) -> list[Path]:
    """A name without wildcards stands for itself, there or not: what is missing is listed."""
    path = Path(pattern).absolute()
    if re.search(r"[*?[]", pattern) is None or path.exists():
        return [path]
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _absolute(spec: str | Path) -> Path:
    return Path(spec).expanduser().absolute()


def _indexed(file: Path, title: str, index: Path | None) -> tuple[list[Sample], list[Skipped]]:
    """What is in a shard, from the index that an earlier look at the same file left, where there is one."""
    try:
        state = retried(file.stat)
    except OSError as error:
        return [], [
            Skipped(str(file), "file not found" if isinstance(error, FileNotFoundError) else str(error.strerror))
        ]
    version = f"{title} {state.st_size} {state.st_mtime_ns}"
    key = hashlib.blake2b(os.fsencode(file) + f"\0{version}\0{VERSION}".encode(), digest_size=16).hexdigest()
    stored = None if index is None else index / f"{key}.json"
    if stored is not None:
        with suppress(OSError, ValueError, TypeError, KeyError):  # not there yet, or damaged
            return _from_json(json.loads(stored.read_text()), file, version)
    try:
        found, skipped = retried(lambda: _read_shard(file, title, version))
    except OSError as error:  # nothing is noted: the next look may see more
        return [], [Skipped(str(file), error.strerror or str(error))]
    if stored is not None and found:
        stored.parent.mkdir(parents=True, exist_ok=True)
        with replacing(stored) as fresh:
            fresh.write_text(json.dumps(_as_json(found, skipped)))
    return found, skipped


def _as_json(found: Sequence[Sample], skipped: Sequence[Skipped]) -> dict[str, object]:
    places = [None if s.picture is None else [s.picture.start, s.picture.size] for s in found]
    rows = [[sample.name, place, sample.stated] for sample, place in zip(found, places, strict=True)]
    return {"samples": rows, "skipped": [[s.path, s.reason] for s in skipped]}


def _from_json(content: Any, file: Path, version: str) -> tuple[list[Sample], list[Skipped]]:
    samples = [
        Sample(name, None if place is None else Place(file, place[0], place[1], version), stated)
        for name, place, stated in content["samples"]
    ]
    return samples, [Skipped(*row) for row in content["skipped"]]


def _read_shard(file: Path, title: str, version: str) -> tuple[list[Sample], list[Skipped]]:
    """The samples of one shard, in the order of their first members; its title begins their names."""
    found: dict[str, Sample] = {}
    skipped: list[Skipped] = []
    try:
        with file.open("rb") as raw, tarfile.open(file, "r:") as tar:
            for member in _members(tar, raw, str(file), skipped):
                folder, _, base = member.name.rpartition("/")
                stem, _, kind = base.partition(".")
                if not stem or not member.isreg() or member.issparse():
                    continue  # folders, links, and the hidden files that some systems add
                key = f"{folder}/{stem}" if folder else stem
                sample = found.setdefault(key, Sample(f"{title}/{key}"))
                _add(
                    sample,
                    f"{title}/{member.name}",
                    kind.lower(),
                    Place(file, member.offset_data, member.size, version),
                    raw,
                    skipped,
                )
    except tarfile.TarError as error:
        skipped.append(Skipped(str(file), f"not a readable tar: {error}"))
    return list(found.values()), skipped


def _members(tar: tarfile.TarFile, raw: BinaryIO, name: str, skipped: list[Skipped]) -> Iterator[tarfile.TarInfo]:
    """Members that are whole; a shard that ends or breaks before its end is listed."""
    fault, size, before = "", raw.seek(0, os.SEEK_END), -1
    try:
        while (member := tar.next()) is not None:
            if member.size < 0 or tar.offset <= before:  # which would lead back, without end
                fault = f"broken at byte {max(before, 0):,}"
                break
            if member.offset_data + member.size > size:
                fault = f"cut short inside {member.name[:200]}"
                break
            before = tar.offset
            yield member
            tar.members = []  # type: ignore[attr-defined]  # else it remembers every one of them
        else:
            raw.seek(tar.offset)  # tarfile takes a broken header for the end
            fault = f"broken at byte {tar.offset:,}" if any(raw.read(BLOCK)) else ""
    except OSError:
        raise
    except Exception as error:  # headers of strangers: numbers that are none, names of names of names, no memory
        fault = f"cut short ({error})" if isinstance(error, tarfile.TarError) else "broken, with a header of nonsense"
    if fault:
        skipped.append(Skipped(name, f"{fault}; what came before is kept"))


def _add(sample: Sample, name: str, kind: str, place: Place, raw: BinaryIO, skipped: list[Skipped]) -> None:
    """What one member states of its sample."""
    last = kind.rpartition(".")[2]
    if f".{last}" in SUFFIXES and place.size > LARGEST_PICTURE:
        skipped.append(Skipped(name, f"{place.size:,} bytes of picture, more than {LARGEST_PICTURE:,}"))
    elif f".{last}" in SUFFIXES:
        if sample.picture is None:
            sample.name, sample.picture = name, place
        else:
            skipped.append(Skipped(name, f"its sample has a picture already, {sample.name}"))
    elif last in TEXTS or last == "json":
        if place.size > LARGEST_TEXT:
            skipped.append(Skipped(name, f"{place.size:,} bytes of text, more than {LARGEST_TEXT:,}"))
            return
        raw.seek(place.start)
        text = raw.read(place.size).decode(errors="surrogateescape").removeprefix("\ufeff")
        if last == "cls":
            sample.stated.setdefault("label", text.strip())
            return
        if last in TEXTS:
            sample.stated[TEXTS[last]] = text.strip()
            return
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            # A label in words is worth more than the number in .cls; a caption of its own file more than one in here.
            said = {key: value for key, value in sample.stated.items() if key != "label" or "label" not in record}
            sample.stated = {str(key): value for key, value in record.items()} | said
        else:
            skipped.append(Skipped(name, "not a JSON object"))
