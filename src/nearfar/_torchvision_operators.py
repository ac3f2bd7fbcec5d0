"""Operators of torchvision that its binary does not bring: declared before torchvision itself is imported.

Package indexes serve torchvision's CUDA build. Beside a CPU-only torch its compiled operators cannot load, and
`import torchvision` itself fails: "operator torchvision::nms does not exist". Where that is so, the operators are
declared here, with a plain torch `nms` behind them; where the binary loads, nothing is done.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor


def binary_loads() -> bool:
    """Whether torchvision's compiled operators can be loaded beside this torch."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ImportError("torchvision is not installed; install it beside torch: pip install torchvision")
    for library in sorted(Path(spec.origin).parent.glob("_C*")):
        try:
            torch.ops.load_library(library)
        except (ImportError, OSError):
            continue
        return True
    return False


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes that no better-scored box kept before overlaps by more than the threshold.

    Args:
        dets: (N, 4) boxes as x1, y1, x2, y2.
        scores: (N,).

    Returns:
        (K,) indices, best score first.
    """
    areas = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])  # (N,)
    rest = scores.argsort(descending=True, stable=True)
    kept = []
    while len(rest):
        best, rest = rest[0], rest[1:]
        kept.append(best)
        width = torch.minimum(dets[best, 2], dets[rest, 2]) - torch.maximum(dets[best, 0], dets[rest, 0])
        height = torch.minimum(dets[best, 3], dets[rest, 3]) - torch.maximum(dets[best, 1], dets[rest, 1])
        overlap = width.clamp(min=0) * height.clamp(min=0)
        rest = rest[overlap <= iou_threshold * (areas[best] + areas[rest] - overlap)]
    return torch.stack(kept) if kept else scores.new_zeros(0, dtype=torch.long)


def _declare_operators() -> torch.library.Library:
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", nms, "CPU")
    return library


COMPILED = binary_loads()
_library = None if COMPILED else _declare_operators()  # lives as long as the process, or the operators vanish


def allow_python_nms(torchvision: ModuleType) -> None:
    """torchvision refuses to call `nms` without its binary, although it is declared here."""
    if not COMPILED:
        torchvision.ops.boxes._assert_has_ops = lambda: None
