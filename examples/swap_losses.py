"""Another library's loss replaced by nearfar's: the import line changes, values and gradients do not.

python examples/swap_losses.py                       # value, gradient and time, beside what is installed
python examples/swap_losses.py --pairs 4096
"""

import argparse
import importlib
import time
from collections.abc import Callable

import torch
from torch import Tensor

from nearfar import _torchvision  # noqa: F401  lets torchvision be imported beside a torch for CPUs alone
from nearfar.adapters.lightly import NTXentLoss  # was: from lightly.loss import NTXentLoss
from nearfar.adapters.open_clip import ClipLoss  # was: from open_clip import ClipLoss
from nearfar.adapters.pytorch_metric_learning import SupConLoss  # was: from pytorch_metric_learning.losses import ...

Loss = Callable[[Tensor, Tensor], Tensor]


def losses(pairs: int) -> dict[str, tuple[Loss, str, str]]:
    """Each loss as it is called in a training loop, and the library and class that it replaces."""
    sample, scale = torch.arange(pairs).repeat(2), torch.tensor(10.0)
    two_views, captions, labelled = NTXentLoss(temperature=0.1), ClipLoss(), SupConLoss(temperature=0.1)
    return {
        "SimCLR": (two_views, "lightly.loss", "NTXentLoss"),
        "CLIP": (lambda z1, z2: captions(z1, z2, scale), "open_clip", "ClipLoss"),
        "SupCon": (
            lambda z1, z2: labelled(torch.cat([z1, z2]), sample),
            "pytorch_metric_learning.losses",
            "SupConLoss",
        ),
    }


def theirs(name: str, library: str, loss: str, pairs: int) -> Loss | None:
    """The class that was replaced, called alike; None where the library is not installed."""
    try:
        made = getattr(importlib.import_module(library), loss)
    except ImportError:
        return None
    sample, scale = torch.arange(pairs).repeat(2), torch.tensor(10.0)
    if name == "CLIP":
        return lambda z1, z2: made()(z1, z2, scale)
    if name == "SupCon":
        return lambda z1, z2: made(temperature=0.1)(torch.cat([z1, z2]), sample)
    found: Loss = made(temperature=0.1)
    return found


def step(loss: Loss, z1: Tensor, z2: Tensor) -> tuple[float, Tensor, float]:
    """Value, gradient and seconds of one forward and backward pass."""
    leaves = [z.clone().requires_grad_() for z in (z1, z2)]
    start = time.perf_counter()
    value = loss(*leaves)
    slopes = torch.autograd.grad(value, leaves)
    return float(value.detach()), torch.cat(slopes), time.perf_counter() - start


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1024, help="of embeddings, 128 numbers each (default: 1024)")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    z1, z2 = torch.nn.functional.normalize(torch.randn(2, options.pairs, 128), dim=2)
    for name, (ours, library, loss) in losses(options.pairs).items():
        value, slope, seconds = step(ours, z1, z2)
        print(f"{name}: {value:.6f} in {1000 * seconds:.0f} ms", end="")
        other = theirs(name, library, loss, options.pairs)
        if other is None:
            print(f"; {library} is not installed")
            continue
        other_value, other_slope, other_seconds = step(other, z1, z2)
        apart = float((slope - other_slope).norm() / other_slope.norm())
        print(f"; {library}: {other_value:.6f} in {1000 * other_seconds:.0f} ms; gradients apart by {apart:.0e}")
        if not (abs(value - other_value) < 1e-4 * abs(other_value) and apart < 1e-3):
            raise SystemExit(f"{name} is not what {library} gives")


if __name__ == "__main__":
    main()
