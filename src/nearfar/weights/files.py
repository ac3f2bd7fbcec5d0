"""Files of weights, read without running anything of them: safetensors, or torch with `weights_only`."""

import argparse
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

DEPTH = 8  # of keys within keys
CONVERT = (
    "convert it where you trust it: python -c \"import torch; x = torch.load('{name}', map_location='cpu', "
    "weights_only=False); x = getattr(x, 'state_dict', lambda: x.get('state_dict', x.get('model', x)))(); "
    "torch.save(x, 'weights.pt')\""
)
CONVERT_SCRIPT = (
    "it is a TorchScript archive, as OpenAI's CLIP is published, which is code; convert it where you trust it: "
    "python -c \"import torch; torch.save(torch.jit.load('{name}', map_location='cpu').state_dict(), 'weights.pt')\""
)


def read_tensors(file: Path) -> dict[str, Tensor]:
    """All tensors of a file by their names; keys within keys are joined by dots, such as "state_dict.conv1.weight"."""
    return tensors_of(read_content(file))


def read_content(file: Path) -> Any:
    """What a file holds: tensors by name, or a training checkpoint."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {str(file)!r}, expected weights, safetensors or torch")
    problem = _missing_content(file)
    if problem is None and file.suffix == ".safetensors":
        return _safetensors(file)
    problem = problem or _archive_problem(file)
    if problem is not None:
        raise ValueError(f"{file} is not a file of weights: {problem}")
    try:
        # torch warns of pickles that it then refuses
        with torch.serialization.safe_globals(_plain_values()), warnings.catch_warnings(action="ignore"):
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of every kind
        seen = re.search(r"GLOBAL ([\w.]+)", str(error)) or re.search(r"global ([\w.]+)", str(error))
        if seen is not None and "weights_only" in str(error).lower():
            needs = f"it holds more than weights ({seen[1]}), and nothing of it was run"
            raise ValueError(f"{file}: {needs}; {CONVERT.format(name=file.name)}") from None
        raise ValueError(
            f"{file} is not a complete file of weights, safetensors or torch ({type(error).__name__}); no code in it "
            "was run; download or copy it again"
        ) from None


def _plain_values() -> list[Any]:
    """Classes of what many projects store beside weights: settings, paths, numbers of numpy such as a best accuracy.

    None of them runs or opens anything; paths are read as names. numpy before 2.0 wrote other module names.
    """
    scalar = np.float64(0).__reduce__()[0]
    numbers = [np.dtype, *(type(np.dtype(kind)) for kind in ("f2", "f4", "f8", "i4", "i8", "?"))]
    scalars = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    paths = [
        (kind, f"{module}.{name}")
        for module in ("pathlib", "pathlib._local")
        for kind, name in ((PurePosixPath, "PosixPath"), (PureWindowsPath, "WindowsPath"))
    ]
    return [argparse.Namespace, *numbers, *scalars, *paths]


def tensors_of(content: Any) -> dict[str, Tensor]:
    """The tensors in keys within keys, by the path to each."""
    found: dict[str, Tensor] = {}

    def visit(value: Any, path: str, depth: int) -> None:
        if isinstance(value, Tensor):
            found[path] = value
        elif isinstance(value, Mapping) and depth < DEPTH:
            for key, inner in value.items():
                if isinstance(key, str):  # numbers are an optimizer's
                    visit(inner, f"{path}.{key}" if path else key, depth + 1)

    visit(content, "", 0)
    return found


def stated_architecture(content: Any) -> str | None:
    """The name of the network that a checkpoint states beside its weights, as MoCo's and timm's do."""
    if not isinstance(content, Mapping):
        return None
    for key in ("arch", "architecture"):
        if isinstance(content.get(key), str):
            return str(content[key])
    args = content.get("args")
    stated = getattr(args, "arch", None) if isinstance(args, argparse.Namespace) else None
    return stated if isinstance(stated, str) else None


def _safetensors(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(
            f"{file} is not a file of weights: no whole safetensors file ({reason}); copy it again"
        ) from None


def _missing_content(file: Path) -> str | None:
    """Why a file cannot hold any tensor, if its first bytes say so."""
    with file.open("rb") as opened:
        first = opened.read(40)
    if not first:
        return "it is empty; download or copy it again"
    if first.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS, which stands for the file; fetch that with git lfs pull"
    return None


def _archive_problem(file: Path) -> str | None:
    """What is wrong with a zip archive before it is opened by torch; None for other files, too."""
    if not zipfile.is_zipfile(file):
        return None
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
    if any("/code/" in f"/{entry.filename}" for entry in entries):
        return CONVERT_SCRIPT.format(name=file.name)
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        return "a compressed archive, which torch never writes: a few bytes could stand for any number"
    return None
