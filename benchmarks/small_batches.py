"""Losses of 32 to 256 pairs beside plain dense code and peers: forward and backward on one thread of a CPU.

    .venv/bin/python benchmarks/small_batches.py            # prints the table of benchmarks/results/small-batches.md

There the number of calls takes the time. Contenders take turns in one process, and processor seconds are counted, so
that other work on the machine matters little. "matrix" and "tiles" are nearfar with the choice between them forced:
where they cross is what `nearfar.losses.engine.small_pairs` and `small` have as constants.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar import (
    _torchvision,  # noqa: F401  before the peers, which import torchvision
    losses,
)
from nearfar.losses.engine import small, small_pairs

T, ROUNDS = 0.1, 7
CONSTANTS = [
    *((small, name) for name in ("_FEW_OF_LOG_SUMS", "_FEW_OF_SOFTPLUS", "_FEW_OF_OWN_ROWS")),
    *((small_pairs, name) for name in ("_FEW_STACKED", "_FEW_PAIRS", "_FEW_SIGMOID")),
]
CHOSEN = [getattr(module, name) for module, name in CONSTANTS]
SCALE = torch.tensor(1 / T, requires_grad=True)
Loss = Callable[[Tensor, Tensor], Tensor]


def dense_nt_xent(z1: Tensor, z2: Tensor) -> Tensor:
    n, z = len(z1), F.normalize(torch.cat([z1, z2]), dim=1)
    s = (z @ z.T / T).masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    return F.cross_entropy(s, torch.arange(2 * n).roll(n))


def dense_info_nce(z1: Tensor, z2: Tensor) -> Tensor:
    return F.cross_entropy(F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T / T, torch.arange(len(z1)))


def dense_symmetric(z1: Tensor, z2: Tensor) -> Tensor:
    s, target = SCALE * F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T, torch.arange(len(z1))
    return (F.cross_entropy(s, target) + F.cross_entropy(s.T, target)) / 2


def dense_sigmoid(z1: Tensor, z2: Tensor) -> Tensor:
    s = 10 * F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T - 10
    return -F.logsigmoid((2 * torch.eye(len(z1)) - 1) * s).sum() / len(z1)


def dense_decoupled(z1: Tensor, z2: Tensor) -> Tensor:
    n, z = len(z1), F.normalize(torch.cat([z1, z2]), dim=1)
    s = z @ z.T / T
    same = torch.eye(n, dtype=torch.bool).repeat(2, 2)
    positive = torch.cat([s.diagonal(n), s.diagonal(n)])
    return (s.masked_fill(same, float("-inf")).logsumexp(1) - positive).mean()


def dense_sup_con(z1: Tensor, z2: Tensor) -> Tensor:
    z, labels = F.normalize(torch.cat([z1, z2]), dim=1), classes(z1)
    itself = torch.eye(len(z), dtype=torch.bool)
    s = (z @ z.T / T).masked_fill(itself, float("-inf"))
    positive = (labels[:, None] == labels) & ~itself
    log_p = s - s.logsumexp(1, keepdim=True)
    return -(log_p.masked_fill(~positive, 0.0).sum(1) / positive.sum(1)).mean()


def classes(z1: Tensor) -> Tensor:
    """Ten classes, the same for both views."""
    return (torch.arange(len(z1)) % 10).repeat(2)


def dense_barlow_twins(z1: Tensor, z2: Tensor) -> Tensor:
    a, b = (F.batch_norm(z, None, None, training=True) for z in (z1, z2))
    c = a.T @ b / len(a)
    on = (c.diagonal() - 1).square().sum()
    return on + 0.0051 * (c.square().sum() - c.diagonal().square().sum())


def dense_vicreg(z1: Tensor, z2: Tensor) -> Tensor:
    variance, covariance = 0.0, 0.0
    for z in (z1, z2):
        variance = variance + F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() / 2
        c = torch.cov(z.T)
        covariance = covariance + (c.square().sum() - c.diagonal().square().sum()) / z.shape[1]
    return 25 * F.mse_loss(z1, z2) + 25 * variance + covariance


def cases() -> dict[str, tuple[int, Loss, dict[str, Loss]]]:
    from info_nce import InfoNCE
    from lightly.loss import BarlowTwinsLoss, DCLLoss, NTXentLoss, VICRegLoss
    from open_clip.loss import ClipLoss
    from pytorch_metric_learning.losses import SupConLoss

    lightly, clip, metric = NTXentLoss(temperature=T), ClipLoss(), SupConLoss(temperature=T)
    return {
        "nt_xent": (
            128,
            lambda a, b: losses.nt_xent(a, b, temperature=T),
            {"plain dense": dense_nt_xent, "lightly": lightly},
        ),
        "info_nce": (
            128,
            lambda a, b: losses.info_nce(a, b, temperature=T),
            {"plain dense": dense_info_nce, "info-nce-pytorch": InfoNCE(temperature=T)},
        ),
        "symmetric_info_nce": (
            512,
            lambda a, b: losses.symmetric_info_nce(a, b, temperature=1 / SCALE),
            {
                "plain dense": dense_symmetric,
                "open_clip": lambda a, b: clip(F.normalize(a, dim=1), F.normalize(b, dim=1), SCALE),
            },
        ),
        "sigmoid_pairs": (
            512,
            lambda a, b: losses.sigmoid_pairs(a, b, logit_scale=10.0, logit_bias=-10.0),
            {"plain dense": dense_sigmoid},
        ),
        "decoupled": (
            128,
            lambda a, b: losses.decoupled(a, b, temperature=T),
            {"plain dense": dense_decoupled, "lightly": DCLLoss(temperature=T)},
        ),
        "sup_con": (
            128,
            lambda a, b: losses.sup_con(torch.cat([a, b]), classes(a), temperature=T),
            {
                "plain dense": dense_sup_con,
                "pytorch-metric-learning": lambda a, b: metric(torch.cat([a, b]), classes(a)),
            },
        ),
        "barlow_twins": (
            128,
            losses.barlow_twins,
            {"plain dense": dense_barlow_twins, "lightly": BarlowTwinsLoss(lambda_param=0.0051)},
        ),
        "vicreg": (128, losses.vicreg, {"plain dense": dense_vicreg, "lightly": VICRegLoss()}),
    }


def choose(most: int | None) -> None:
    """The matrix for up to so many entries; None: as measured."""
    for (module, name), value in zip(CONSTANTS, CHOSEN, strict=True):
        setattr(module, name, value if most is None else most)


def seconds(loss: Loss, most: int | None, z1: Tensor, z2: Tensor, steps: int) -> float:
    choose(most)
    start = time.process_time()
    for _ in range(steps):
        z1.grad = z2.grad = SCALE.grad = None
        loss(z1, z2).backward()
    return (time.process_time() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", nargs="+", help="names; all by default")
    chosen = parser.parse_args().losses
    torch.set_num_threads(1)
    print("| loss | pairs | D | nearfar | plain dense | peer | matrix | tiles |\n|---|---|---|---|---|---|---|---|")
    for name, (features, ours, others) in cases().items():
        if chosen and name not in chosen:
            continue
        for pairs in (32, 64, 128, 256):
            generator = torch.Generator().manual_seed(0)
            z1, z2 = (torch.randn(pairs, features, generator=generator).requires_grad_() for _ in range(2))
            steps = max(4, 2000 // pairs)
            ways: dict[str, tuple[Loss, int | None]] = {"nearfar": (ours, None), "matrix": (ours, 1 << 40)}
            ways |= {"tiles": (ours, 0), **{other: (loss, None) for other, loss in others.items()}}
            for loss, most in ways.values():
                seconds(loss, most, z1, z2, 3)
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(ROUNDS):
                for way, (loss, most) in ways.items():
                    times[way].append(seconds(loss, most, z1, z2, steps))
            own = statistics.median(times.pop("nearfar"))
            ratio = {way: f"{statistics.median(found) / own:.2f}" for way, found in times.items()}
            peer = next(
                (f"{ratio[way]} ({way})" for way in ratio if way not in ("plain dense", "matrix", "tiles")), "–"
            )
            cells = (name, pairs, features, f"{own * 1e3:.2f} ms", ratio["plain dense"], peer, ratio["matrix"])
            print("| " + " | ".join(map(str, cells)) + f" | {ratio['tiles']} |", flush=True)


if __name__ == "__main__":
    main()
