"""One way to name weights, for every command and for `nearfar.load`. Needs no torch."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from nearfar.messages import nearest_or_all

Kind = Literal["timm", "torchvision", "hf", "open_clip", "package", "folder", "file", "hub"]
LIBRARIES = ("timm", "torchvision", "hf", "open_clip", "package")  # written before a colon
EXPECTED = (
    "a run or export folder, USER/NAME of the hub, timm:NAME, torchvision:NAME, hf:FOLDER or hf:NAME, open_clip:NAME, "
    "package:NAME, or a file of weights; timm:NAME=FILE reads the weights of NAME from a file"
)
_ON_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class WeightsName:
    """What a text such as "timm:resnet50" stands for.

    Attributes:
        kind: the library, or "folder" (a run or an export), "file", or "hub" (an export there).
        name: of the network there; of a folder or file, its path.
        file: where the weights are, if they are not the published ones.
    """

    kind: Kind
    name: str
    file: Path | None = None

    def __str__(self) -> str:
        """
        >>> str(parse_name("timm:resnet50")), str(parse_name("open_clip:ViT-B-32=clip.pt"))
        ('timm:resnet50', 'open_clip:ViT-B-32=clip.pt')
        """
        if self.kind in ("folder", "file"):
            return self.name
        return f"{self.kind}:{self.name}" + (f"={self.file}" if self.file is not None else "")

    @property
    def is_published(self) -> bool:
        """Whether these are the weights that a library publishes, and not those of a file."""
        return self.kind in ("timm", "torchvision") and self.file is None

    def absolute(self) -> "WeightsName":
        """The same with paths in full, so that it is found from elsewhere, too."""
        if self.file is not None:
            return replace(self, file=self.file.absolute())
        here = Path(self.name).expanduser()
        local = self.kind in ("folder", "file") or (self.kind in ("hf", "open_clip") and here.is_dir())
        return replace(self, name=str(here.absolute())) if local else self


def is_hub_name(text: str) -> bool:
    """Whether a text is a name as the hub has them: user/name.

    >>> is_hub_name("me/birds"), is_hub_name("runs/a/b"), is_hub_name("me/../x")
    (True, False, False)
    """
    return _ON_HUB.fullmatch(text) is not None and ".." not in text


def parse_name(spec: str | Path, *, hub: bool = False) -> WeightsName:
    """What a text stands for; refuses one that is no folder, no file and of no known library.

    Args:
        hub: take user/name for a name of the hub, unless there is a folder "user" here: then it is a mistyped path.

    >>> parse_name("package:minilm")
    WeightsName(kind='package', name='minilm', file=None)
    >>> parse_name("timm:resnet18=my.pt")
    WeightsName(kind='timm', name='resnet18', file=PosixPath('my.pt'))
    """
    text = str(spec)
    kind, colon, rest = text.partition(":")
    if colon and kind in LIBRARIES:
        name, equals, file = rest.partition("=")
        if not name or (equals and not file):
            raise ValueError(f"weights are {text!r}, expected {kind}:NAME or {kind}:NAME=FILE")
        known: Kind = next(each for each in get_args(Kind) if each == kind)
        if kind in ("hf", "package"):
            return WeightsName(known, rest)
        return WeightsName(known, name, Path(file).expanduser() if equals else None)
    path = Path(text).expanduser()
    if path.is_dir():
        return WeightsName(_kind_of_folder(path), str(path))
    if path.is_file():
        return WeightsName("file", str(path))
    if colon and "/" not in kind and len(kind) > 1:  # one letter is a drive
        raise ValueError(f"weights are {text!r}: {kind!r} is not a library{nearest_or_all(kind, LIBRARIES)}")
    if hub and is_hub_name(text) and not path.parent.is_dir():
        return WeightsName("hub", text)
    raise FileNotFoundError(f"there is no {text!r}, expected {EXPECTED}")


def _kind_of_folder(folder: Path) -> Kind:
    """A run or an export, unless it is as another library writes it."""
    if not (folder / "card.json").is_file():
        if (folder / "open_clip_config.json").is_file():
            return "open_clip"
        if (folder / "config.json").is_file():
            return "hf"
    return "folder"
