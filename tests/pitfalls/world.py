"""A small world to see damage in: eight classes in a few features, beside louder ones that mean nothing.

A view keeps the meaning, with a little noise, and draws the rest anew. So whoever learns what views share finds the
classes, and who learns anything else, or nothing, finds fewer.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from nearfar.evaluation.knn import knn_accuracy
from nearfar.losses.arguments import l2_normalize
from nearfar.losses.engine.top_k import top_k_similarity

CLASSES, MEANING, NOISE = 8, 8, 24
FEATURES, DIM = MEANING + NOISE, 16
BATCH = 128

Loss = Callable[[Tensor, Tensor], Tensor]


def samples(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """What n samples mean (n, 8), and their classes (n,)."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * l2_normalize(torch.randn(CLASSES, MEANING, generator=torch.Generator().manual_seed(99)))
    labels = torch.randint(CLASSES, (n,), generator=generator)
    return centres[labels] + 0.5 * torch.randn(n, MEANING, generator=generator), labels


def view(meaning: Tensor, generator: torch.Generator) -> Tensor:
    """(n, 32), one look at the samples."""
    kept = meaning + 0.2 * torch.randn(meaning.shape, generator=generator)
    return torch.cat([kept, 3 * torch.randn(len(meaning), NOISE, generator=generator)], 1)


def batches(steps: int, seed: int = 0, size: int = BATCH) -> Iterator[tuple[Tensor, Tensor]]:
    """Two views of fresh samples, again and again."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        meaning, _ = samples(size, 1000 * seed + step)
        yield view(meaning, generator), view(meaning, generator)


def network(seed: int = 0) -> nn.Sequential:
    """(n, 32) to (n, 16); the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, DIM))


def trained(loss: Loss, *, steps: int = 150, lr: float = 3e-3, seed: int = 0) -> nn.Sequential:
    """The network after some steps of Adam on a loss of two views' embeddings."""
    encoder = network(seed)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=lr)
    for view1, view2 in batches(steps, seed):
        optimizer.zero_grad()
        loss(encoder(view1), encoder(view2)).backward()
        optimizer.step()
    return encoder


@torch.no_grad()
def embedded(encoder: nn.Module, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """(n, 16) of one view of fresh samples, and their classes."""
    meaning, labels = samples(n, seed)
    return encoder.eval()(view(meaning, torch.Generator().manual_seed(seed))), labels


def knn(encoder: nn.Module, *, n: int = 1000, seed: int = 50_000) -> float:
    """The part of n fresh samples whose class their neighbours tell."""
    train, labels = embedded(encoder, 1000, 40_000)
    test, test_labels = embedded(encoder, n, seed)
    return knn_accuracy(train, labels, test, test_labels).value


@torch.no_grad()
def twins_found(encoder: nn.Module, other: nn.Module | None = None) -> float:
    """The part of 8,192 views whose most similar view among 512 others, of `other`, is their own twin."""
    found = []
    for view1, view2 in batches(16, seed=7, size=512):
        z1, z2 = l2_normalize(encoder.eval()(view1)), l2_normalize((other or encoder).eval()(view2))
        _, nearest = top_k_similarity(z1, z2, k=1)
        found.append((nearest[:, 0] == torch.arange(len(z1))).double().mean())
    return float(torch.stack(found).mean())
