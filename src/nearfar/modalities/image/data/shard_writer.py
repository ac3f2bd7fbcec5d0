"""Any images as shards: tar files that WebDataset reads, each written whole or not at all, and a list of them."""

import io
import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from nearfar.data.cache import replacing
from nearfar.data.dataset import Skipped
from nearfar.data.pack import shown_progress
from nearfar.data.retry import retried
from nearfar.modalities.image.data.decode import SUFFIXES, opened, why
from nearfar.modalities.image.data.shards import INDEX
from nearfar.modalities.image.data.source import ImageSource, as_picture

SAMPLES, MEGABYTES = 10_000, 256  # of a shard, at most
VERSION = 2  # of what is written; shards of another one are not gone on with


@dataclass
class Written:
    """What is in the folder so far: the content of its list."""

    made_of: dict[str, Any]
    classes: list[str] | None
    shards: list[dict[str, Any]] = field(default_factory=list)  # file, samples, bytes
    skipped: list[list[str]] = field(default_factory=list)  # name and reason
    seen: int = 0  # samples of the source, written or skipped
    complete: bool = False

    @property
    def samples(self) -> int:
        return sum(shard["samples"] for shard in self.shards)

    def save(self, folder: Path) -> None:
        content = {"samples": self.samples, **self.__dict__}
        with replacing(folder / INDEX) as fresh:
            fresh.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def write_shards(
    source: ImageSource,
    folder: Path,
    *,
    name: str = "shard",
    samples: int = SAMPLES,
    megabytes: float = MEGABYTES,
    seed: int | None = 0,
    verify: bool = True,
    progress: bool = True,
) -> Written:
    """Write a source as `NAME-000000.tar`, `NAME-000001.tar`, … and `index.json`, which lists them.

    A sample is its picture (the bytes of its file, as they are; arrays as PNG), `.cls` with the number of its label,
    `.txt` with its caption, and `.json` with what these cannot say: the name of the label, captions where some samples
    have several, the group, and where it came from. Pictures that cannot be decoded are left out and listed.
    Killed, a second call with the same arguments goes on after the last finished shard.

    Args:
        folder: where to; must not hold anything else.
        samples, megabytes: of a shard, at most; it is closed by whichever comes first.
        seed: of the order in which samples are written, so that a shard is like any other; None keeps the source's.
        verify: decode every picture to its end; else its header alone is read, and one that is cut short is kept.
        progress: show a bar.
    """
    if samples < 1 or not megabytes > 0:
        raise ValueError(f"a shard of {samples} samples or {megabytes} MB is asked for, expected above 0")
    made_of = {
        "source": source.description,
        "fingerprint": source.fingerprint(),
        "settings": [VERSION, name, samples, megabytes, seed, verify],
    }
    folder.mkdir(parents=True, exist_ok=True)
    done = _begun(folder, made_of) or Written(made_of, source.classes, [], [[s.path, s.reason] for s in source.skipped])
    several = any(len(captions) > 1 for captions in source.captions or ())
    order = list(range(len(source)))
    if seed is not None:
        order = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed)).tolist()
    with shown_progress(progress) as bar:
        task = bar.add_task("writing shards", total=len(source), completed=done.seen, skipped="")
        while not done.complete:
            path = folder / f"{name}-{len(done.shards):06d}.tar"
            with replacing(path) as fresh:
                count, seen = 0, done.seen
                with tarfile.open(fresh, "w", format=tarfile.USTAR_FORMAT) as tar:
                    while seen < len(order) and count < samples and tar.offset < megabytes * 1e6:
                        members = _members(source, order[seen], several, verify, done.skipped)
                        for suffix, content in members.items():
                            _add(tar, f"{seen:09d}.{suffix}", content)
                        count += bool(members)
                        seen += 1
                        bar.update(task, completed=seen, skipped=f"{len(done.skipped)} skipped" if done.skipped else "")
                if count == 0 and not done.shards:
                    raise ValueError(f"none of the {len(source)} images of {source.description} can be read")
            if count:
                done.shards.append({"file": path.name, "samples": count, "bytes": path.stat().st_size})
            else:
                path.unlink()  # what was left could not be read
            done.seen, done.complete = seen, seen == len(order)
            done.save(folder)
    return done


def _begun(folder: Path, made_of: dict[str, Any]) -> Written | None:
    """What an earlier call wrote of the same; an error where the folder holds anything else."""
    list_file = folder / INDEX
    if not list_file.exists():
        # Hidden ones are left by a kill.
        if other := min((entry.name for entry in folder.iterdir() if not entry.name.startswith(".")), default=None):
            raise FileExistsError(f"{folder} holds {other} already; give another folder")
        return None
    try:
        content = json.loads(list_file.read_text(encoding="utf-8"))
        content.pop("samples")
        found = Written(**content)
    except (ValueError, TypeError, AttributeError, KeyError):
        raise FileExistsError(f"{list_file} is not a list of shards; give another folder") from None
    if found.made_of != made_of:
        raise FileExistsError(f"{folder} holds shards of other data or settings; give another folder")
    return found


def _members(
    source: ImageSource, index: int, several: bool, verify: bool, skipped: list[list[str]]
) -> dict[str, bytes]:
    """The members of a sample by suffix; none where its picture cannot be read."""
    try:
        suffix, picture = _picture(source, index, verify)
    except Exception as error:  # Pillow raises of every kind on broken files
        fault = Skipped(source.names[index], why(error))
        skipped.append([fault.path, fault.reason])
        return {}
    members: dict[str, bytes] = {suffix: picture}
    more: dict[str, Any] = {"source": source.names[index]}
    label = -1 if source.labels is None else int(source.labels[index])
    if label >= 0:
        members["cls"] = str(label).encode()
        more |= {"label": source.classes[label]} if source.classes is not None else {}
    if source.captions is not None:
        if several:
            more["captions"] = list(source.captions[index])
        else:
            members["txt"] = source.captions[index][0].encode()
    if source.groups is not None:
        more["group"] = int(source.groups[index])
    members["json"] = json.dumps(more).encode()
    return members


def _picture(source: ImageSource, index: int, verify: bool) -> tuple[str, bytes]:
    """Suffix and bytes of a picture."""
    if source.paths is not None:
        image: Any = retried(source.paths[index].read_bytes)
    else:
        image = source.items[index]
    if not isinstance(image, bytes):
        file = io.BytesIO()
        (image if isinstance(image, Image.Image) else as_picture(image)).save(file, "PNG")
        return "png", file.getvalue()
    with opened(io.BytesIO(image)) as picture:
        kind = str(picture.format).lower()
        if verify:
            picture.draft(None, (1, 1))  # a JPEG at an eighth, which reads all of it at a part of the work
            picture.load()
    suffix = {"jpeg": "jpg", "mpo": "jpg"}.get(kind, kind)
    if f".{suffix}" not in SUFFIXES:
        raise ValueError(f"a picture of the kind {kind}, expected one of {', '.join(sorted(SUFFIXES))}")
    return suffix, image


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Without time or owner: the same data make the same shards."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
