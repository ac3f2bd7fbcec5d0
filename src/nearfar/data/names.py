"""Is the data that a command names there at all? Asked before torch is imported, so that a wrong path fails at once."""

import glob
import re
from contextlib import suppress
from pathlib import Path

from nearfar.messages import nearest

BUILT_IN = ("glyphs", "glyph-scenes", "icons", "waves", "melodies", "spoken")
TORCHVISION = (
    "CIFAR10", "CIFAR100", "STL10", "SVHN", "MNIST", "FashionMNIST", "KMNIST", "USPS", "Food101", "Flowers102",
    "OxfordIIITPet", "DTD", "EuroSAT", "FGVCAircraft", "Caltech101", "Caltech256", "GTSRB", "Country211", "SUN397",
    "Imagenette", "PCAM", "SEMEION", "FakeData",
)  # fmt: skip
_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def check_there(
    data: str | None, method: str | None = None, modality: str | None = None, run: str | None = None
) -> None:
    """Refuse data that are neither a path that exists nor a name.

    Args:
        data: as --data takes it; None is left to a default.
        method, modality, run: of someone's own code ("MODULE:NAME") may read names that are not known here.
    """
    if data is None or not data.strip() or data.startswith("python:"):
        return
    if ":" in f"{method or ''}{modality or ''}" or (run is not None and _of_own_modality(Path(run).expanduser())):
        return
    path = Path(re.sub(r"(?<=.):[^:=/]+=.*$", "", data)).expanduser()
    plain = data.partition(":")[0].lower().replace("-", "").replace("_", "")
    known = {name.lower().replace("-", "") for name in (*BUILT_IN, *TORCHVISION)}
    if path.exists() or path.is_symlink() or _is_pattern(data) or plain in {*known, "torchvision"}:
        return
    raise FileNotFoundError(f"there is no file or folder {data!r}{_hint(data, path)}")


def check_run_there(run: str | None) -> None:
    """Refuse a run, export or file that is not there; names of libraries and of the hub are looked up later."""
    if run is None or ":" in run or Path(run).expanduser().exists():
        return
    path_like = re.match(r"[~/]|\.\.?/|runs/", run)
    if not path_like and _HUB.fullmatch(run) and not Path(run).parent.is_dir():
        return
    close = _siblings(Path(run).expanduser()) or "; expected a run or export folder, or a name such as timm:NAME"
    raise FileNotFoundError(f"there is no run or file {run!r}{close}")


def check_files_there(*files: str | None, expected: str) -> None:
    """Refuse files that are not there.

    Args:
        expected: what each should be, for the message.
    """
    for file in files:
        if file is not None and not Path(file).expanduser().exists():
            hint = _siblings(Path(file).expanduser())
            raise FileNotFoundError(f"there is no file or folder {file!r}, expected {expected}{hint}")


def _of_own_modality(run: Path) -> bool:
    """Whether a run or export says that its modality is someone's own, as "MODULE:NAME"."""
    for file in (run / "config.yaml", run / "card.json"):
        with suppress(OSError, UnicodeDecodeError):
            if re.search(r"""\bmodality["']?: *["']?[\w.]+:\w""", file.read_text(encoding="utf-8")):
                return True
    return False


def _is_pattern(data: str) -> bool:
    """Shards such as train-{000..127}.tar, or places that are not on this disk."""
    return bool(re.search(r"\{\d+\.\.\d+\}|::|://", data)) or glob.has_magic(data)


def _hint(data: str, path: Path) -> str:
    if close := _siblings(path):
        return close
    if _HUB.fullmatch(data) and not path.parent.is_dir():
        return (
            f"; if it is a data set of the Hugging Face hub, fetch it first (hf download --repo-type dataset {data} "
            "--local-dir FOLDER) and give that folder"
        )
    if "/" not in data and "." not in data:
        names = [*BUILT_IN, *(name.lower() for name in TORCHVISION)]
        return nearest(data, names) or "; expected a path, or a name such as 'glyphs' or 'cifar10'"
    above = next((each for each in path.parents if each.is_dir()), Path())
    return "" if above == path.parent else f": {path.parent} is not there either, only {above.absolute()}"


def _siblings(path: Path) -> str:
    """The name beside it that was probably meant."""
    try:
        return nearest(path.name, [each.name for each in path.parent.iterdir() if not each.name.startswith(".")])
    except OSError:
        return ""
