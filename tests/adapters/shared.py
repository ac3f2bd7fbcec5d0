"""What the processes of the tests do: losses of adapters, or of the libraries they stand in for, on a share each."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

WORLD, ROWS = 2, 4
MODES = {f"clip, local {a}, grad {b}": (a, b) for a in (False, True) for b in (False, True)}
LIGHTLY = ("NTXentLoss", "DCLLoss", "DCLWLoss", "VICRegLoss")
LABELED = [
    (name, efficient) for name in ("NTXentLoss", "SupConLoss", "TripletMarginLoss") for efficient in (False, True)
]
SIGLIP = ("bidir", "shift", "reduce", "gather")


def open_clip_losses() -> ModuleType | None:
    """`open_clip.loss` without the rest of its package, which takes seconds to import; None where it is missing."""
    package = importlib.util.find_spec("open_clip")
    if package is None or not package.submodule_search_locations:
        return None
    spec = importlib.util.spec_from_file_location(
        "open_clip_loss", Path(package.submodule_search_locations[0]) / "loss.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def everyone() -> tuple[Tensor, Tensor]:
    z1, z2 = torch.randn(2, WORLD * ROWS, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.nn.functional.normalize(z1 + z2), torch.nn.functional.normalize(z2)


def losses(peers: bool) -> dict[str, Any]:
    """Functions of two tensors, a scale and a bias, by name."""
    lightly: Any
    open_clip: Any
    if peers:
        from nearfar import _torchvision  # noqa: F401  before the peers, which import torchvision

        lightly, open_clip = importlib.import_module("lightly.loss"), open_clip_losses()
    else:
        from nearfar.adapters import lightly, open_clip
    rank = dist.get_rank()
    found: dict[str, Any] = {}
    for name in LIGHTLY:
        loss = getattr(lightly, name)(gather_distributed=True)
        found[name] = lambda a, b, s, c, loss=loss: loss(a, b)
    for name, (local, grad) in MODES.items():
        loss = open_clip.ClipLoss(local_loss=local, gather_with_grad=grad, rank=rank, world_size=WORLD)
        found[name] = lambda a, b, s, c, loss=loss: loss(a, b, s, c)
    for way in SIGLIP:
        loss = open_clip.SigLipLoss(rank=rank, world_size=WORLD, dist_impl=way)
        found[f"siglip, {way}"] = lambda a, b, s, c, loss=loss: loss(a, b, s, c)
    labelled: Any = importlib.import_module(
        "pytorch_metric_learning.losses" if peers else "nearfar.adapters.pytorch_metric_learning"
    )
    wrapper: Any = labelled
    if peers:
        wrapper = importlib.import_module("pytorch_metric_learning.utils.distributed")
    labels = torch.tensor([0, 1, 1, 2, 0, 0, 2, 1])[rank * ROWS : (rank + 1) * ROWS]
    for name, efficient in LABELED:
        wrapped = wrapper.DistributedLossWrapper(getattr(labelled, name)(), efficient)
        found[f"{name}, {efficient}"] = lambda a, b, s, c, wrapped=wrapped: wrapped(a, labels) + 0 * b.sum()
    return found


def measured(peers: bool, say: Any) -> dict[str, list[Tensor]]:
    """Of each loss: value and gradients of this process' rows, and those of scale and bias as DDP averages them."""
    rank, found = dist.get_rank(), {}
    for name, loss in losses(peers).items():
        a, b = (x[rank * ROWS : (rank + 1) * ROWS].clone().requires_grad_() for x in everyone())
        scale, bias = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (5.0, -2.0))
        value = loss(a, b, scale, bias)
        slopes = torch.autograd.grad(value, (a, b, scale, bias), materialize_grads=True)
        for shared in slopes[2:]:
            dist.all_reduce(shared)
        found[name] = [value.detach(), *slopes[:2], *(x / WORLD for x in slopes[2:])]
    try:
        from nearfar.adapters.lightly import BarlowTwinsLoss

        BarlowTwinsLoss(gather_distributed=True)(*everyone())
    except ValueError as error:
        found["refused"] = [str(error)]  # type: ignore[list-item]
    return found
