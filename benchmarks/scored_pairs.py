"""Which loss of scored pairs suits an encoder that is right about most of them: on its frozen embeddings, in a minute.

    .venv/bin/python benchmarks/scored_pairs.py --data stsb [--weights package:minilm] [--steps 540]

`--data` holds `train` and `dev` tables of two texts and a score. Every other pair is embedded once. Then a square
matrix on the embeddings, the identity to begin with, is trained by each loss on batches of 32 pairs, with AdamW and a
rate that falls to 0: what a layer more would learn, for many settings in the time of one run. The number is Spearman's
correlation on the dev part, which settings are chosen by. Losses: CoSENT at several temperatures, the squared error of
the cosine, and one minus the correlation of the batch.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import nearfar
from nearfar.evaluation.protocols.similarity import pair_cosines, spearman
from nearfar.losses import cosent
from nearfar.modalities.text.data import open_texts
from nearfar.model.encoder import Encoder

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
RATES, TEMPERATURES, BATCH = (3e-4, 1e-3), (0.05, 0.1, 0.2, 0.5, 1.0), 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", default="package:minilm")
    parser.add_argument("--steps", type=int, default=540)
    options = parser.parse_args()
    torch.set_num_threads(1)
    encoder = nearfar.load(options.weights)
    train, dev = (embedded(encoder, options.data, split) for split in ("train", "dev"))
    losses: dict[str, Loss] = {f"CoSENT, temperature {t:g}": partial(_cosent, temperature=t) for t in TEMPERATURES}
    losses |= {"squared error of the cosine": squared_error, "one minus correlation": decorrelation}
    print(
        f"start {spearman(pair_cosines(*dev[:2]), dev[2].double()):.4f}; train {len(train[2]):,}, dev {len(dev[2]):,}"
    )
    print("| loss |" + "".join(f" rate {rate:g} |" for rate in RATES) + "\n|---|" + "---|" * len(RATES))
    for name, loss in losses.items():
        print(f"| {name} |" + "".join(f" {fit(train, dev, loss, rate, options.steps):.3f} |" for rate in RATES))


def embedded(encoder: Encoder, folder: Path, split: str) -> tuple[Tensor, Tensor, Tensor]:
    """(N, F), (N, F) and (N,): every other pair, and its score."""
    data = open_texts(folder, split=split)
    assert data.partners is not None and data.scores is not None
    with torch.autocast("cpu", torch.bfloat16):
        first, second = (encoder.encode(texts[::2]).float() for texts in (data.texts, data.partners))
    return first, second, data.scores[::2]


def fit(train: tuple[Tensor, ...], dev: tuple[Tensor, ...], loss: Loss, rate: float, steps: int) -> float:
    first, second, scores = train
    generator, matrix = torch.Generator().manual_seed(0), torch.eye(first.shape[1], requires_grad=True)
    optimizer = torch.optim.AdamW([matrix], lr=rate, weight_decay=0.0)
    order: list[Tensor] = []
    for step in range(steps):
        order = order or list(torch.randperm(len(scores), generator=generator).split(BATCH))
        rows = order.pop()
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        optimizer.zero_grad()
        loss(first[rows] @ matrix, second[rows] @ matrix, scores[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        return spearman(pair_cosines(dev[0] @ matrix, dev[1] @ matrix), dev[2].double())


def _cosent(first: Tensor, second: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    return cosent(first, second, scores, temperature=temperature)


def squared_error(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    return (F.cosine_similarity(first, second) - scores / 5).square().mean()


def decorrelation(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    return 1 - torch.corrcoef(torch.stack([F.cosine_similarity(first, second), scores]))[0, 1]


if __name__ == "__main__":
    main()
