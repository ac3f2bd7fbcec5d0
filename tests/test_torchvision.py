"""torchvision imports beside a CPU-only torch, and is left alone where its own binary loads."""

import importlib.machinery
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nearfar import _torchvision


def test_detection_models_and_their_users_import_and_run() -> None:
    program = (
        "from nearfar import _torchvision\n"
        "import torch, torchvision, timm, torchmetrics, lightning\n"
        "small = dict(weights=None, weights_backbone=None, min_size=64, max_size=64)\n"
        "model = torchvision.models.detection.fcos_resnet50_fpn(**small).eval()\n"
        "with torch.no_grad():\n"
        "    out = model([torch.rand(3, 64, 64)])\n"
        "print(sorted(out[0]))\n"
    )
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "['boxes', 'labels', 'scores']", run.stderr


@pytest.mark.parametrize("module", ["torchvision", "timm"])
def test_a_program_that_imported_nearfar_imports_torchvision(module: str) -> None:
    program = f"import nearfar, sys; assert 'torch' not in sys.modules; import {module}; print('imported')"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "imported", run.stderr


def loops_nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> list[int]:
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if all(iou(boxes[i].tolist(), boxes[j].tolist()) <= threshold for j in kept):
            kept.append(i)
    return kept


def iou(a: list[float], b: list[float]) -> float:
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    overlap = width * height
    return overlap / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - overlap)


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_nms_keeps_what_the_double_loop_keeps(threshold: float) -> None:
    generator = torch.Generator().manual_seed(0)
    corner = 10 * torch.rand(60, 2, generator=generator, dtype=torch.float64)
    boxes = torch.cat([corner, corner + 0.5 + 4 * torch.rand(60, 2, generator=generator, dtype=torch.float64)], 1)
    scores = torch.rand(60, generator=generator, dtype=torch.float64)
    assert _torchvision.nms(boxes, scores, threshold).tolist() == loops_nms(boxes, scores, threshold)


def test_nms_of_nothing_is_nothing() -> None:
    assert _torchvision.nms(torch.zeros(0, 4), torch.zeros(0), 0.5).tolist() == []


def test_torchvisions_own_nms_call_reaches_an_implementation() -> None:
    import torchvision

    boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6]])
    assert torchvision.ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]


def fake_torchvision(folder: Path, binary: bytes) -> None:
    """A package of torchvision's shape, whose compiled part is `binary`."""
    (folder / "torchvision").mkdir()
    (folder / "torchvision" / f"_C{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(binary)
    (folder / "torchvision" / "__init__.py").write_text("from torchvision import ops\n")
    (folder / "torchvision" / "ops").mkdir()
    (folder / "torchvision" / "ops" / "__init__.py").write_text("from torchvision.ops import boxes\n")
    (folder / "torchvision" / "ops" / "boxes.py").write_text("_assert_has_ops = 'untouched'\n")


REPORT = (
    "{}\n"
    "import torch, torchvision\n"
    "from nearfar import _torchvision as t\n"
    "print(t.COMPILED, hasattr(torch.ops.torchvision, 'nms'), torchvision.ops.boxes._assert_has_ops == 'untouched')\n"
)


def report(folder: Path, first: str) -> str:
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n" + REPORT.format(first)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


FIRST = pytest.mark.parametrize("first", ["import nearfar", "from nearfar import _torchvision"])


@FIRST
def test_where_the_binary_loads_nothing_is_done(tmp_path: Path, first: str) -> None:
    loadable = Path(str(torch._C.__file__)).read_bytes()  # any library that loads beside torch
    fake_torchvision(tmp_path, loadable)
    assert report(tmp_path, first) == "True False True"


@FIRST
def test_where_the_binary_does_not_load_the_operators_are_declared(tmp_path: Path, first: str) -> None:
    fake_torchvision(tmp_path, b"no library")
    assert report(tmp_path, first) == "False True False"
