"""A loss in your own loop: plain PyTorch, and one import of nearfar.

python examples/own_loop.py                      # ten shapes of a wave, learned without their names
"""

import argparse

import torch
from torch import Tensor, nn

from nearfar.losses import nt_xent

SHAPES, LENGTH = 10, 64


def waves(n: int) -> tuple[Tensor, Tensor]:
    """(n, LENGTH) closed curves of ten shapes, each begun anywhere and noisy, and their (n,) labels."""
    angle = torch.arange(LENGTH) * 2 * torch.pi / LENGTH
    phase = torch.rand(SHAPES, 4, 1, generator=torch.Generator().manual_seed(1)) * 2 * torch.pi
    shapes = sum(torch.cos(k * angle + phase[:, k - 1]) for k in range(1, 5))  # (SHAPES, LENGTH)
    labels = torch.randint(SHAPES, (n,))
    return view(shapes[labels]), labels


def view(x: Tensor) -> Tensor:
    """(B, LENGTH): the same shapes, begun elsewhere, with other noise."""
    place = torch.arange(LENGTH) + torch.randint(LENGTH, (len(x), 1))
    return x.gather(1, place % LENGTH) + 0.3 * torch.randn_like(x)


@torch.no_grad()
def score(encoder: nn.Module, x: Tensor, labels: Tensor) -> float:
    """How often a sample is nearest to the one sample of its shape that has a name; 1 in 10 by chance."""
    h = nn.functional.normalize(encoder(x))
    named = torch.stack([h[labels == shape][0] for shape in range(SHAPES)])  # (SHAPES, F)
    return float(((h @ named.T).argmax(1) == labels).float().mean())


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    x, _ = waves(2000)
    test, labels = waves(1000)
    encoder = nn.Sequential(nn.Linear(LENGTH, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))
    before = score(encoder, test, labels)

    # The part that matters: your model, your optimizer, your loop.
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=2e-3)
    for step in range(options.steps):
        batch = x[torch.randint(len(x), (options.batch_size,))]
        loss = nt_xent(encoder(view(batch)), encoder(view(batch)), temperature=0.2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    after = score(encoder, test, labels)
    print(f"named right, by one example of each shape: untrained {before:.0%}, trained {after:.0%} of {len(test):,}")
    return before, after


if __name__ == "__main__":
    main()
