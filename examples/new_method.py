"""A new method in one file: the paper's idea in `encode` and `contrast`, and everything else for free.

This one is SimCLR with the nearest of each view's negatives weighted up, a slowly moving copy of the network as the
second view's encoder, and both in forty lines. From the folder of this file:

    nearfar check new_method:HardTwins                     # loss and gradient, in tiles, types, on several processes
    nearfar train --data glyphs:2000 --method new_method:HardTwins --backbone strokes --options.beta 0.5
    python new_method.py                                   # the same from Python
"""

import argparse
from pathlib import Path

import torch
from torch import nn

import nearfar
from nearfar.evaluation.results import Results
from nearfar.losses import hard_negative
from nearfar.methods import Batch, Encoded, Method, Step
from nearfar.nn.ema import ema_update, frozen_copy
from nearfar.nn.heads import projector


class HardTwins(Method):
    """Each view must find its twin, as a slow copy of the network sees it, among negatives of which the hardest count.

    Args:
        encoder: x (B, ...) to h (B, features); what is kept.
        features, samples: given by the trainer: F, and how many training samples there are.
        temperature, beta, momentum: options, set by `--options.beta 0.5`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.2,
        beta: float = 0.3,
        momentum: float = 0.99,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector(features, features, 64)
        self.slow = frozen_copy(
            nn.Sequential(self.encoder, self.projector)
        )  # a copy, and no second name for the network
        self.temperature, self.beta, self.momentum = temperature, beta, momentum

    def encode(self, batch: Batch) -> Encoded:
        """What is done for each sample. It may be run in parts, and on several processes."""
        x1, x2 = batch.views[:2]
        with torch.no_grad():
            z2 = self.slow(x2)
        return {"z1": self.projector(self.encoder(x1)), "z2": z2, "ids": batch.ids}

    def contrast(self, encoded: Encoded) -> Step:
        """What is done across samples: here are those of all parts and of all processes."""
        z1, z2 = encoded["z1"], encoded["z2"]
        loss = hard_negative(z1, z2, temperature=self.temperature, beta=self.beta, ids=encoded["ids"])
        return Step(loss, z1.detach(), z2, candidates=2 * len(z1) - 1)

    def after_step(self, progress: float) -> None:
        """Called after every step of the optimizer."""
        ema_update(self.slow, nn.Sequential(self.encoder, self.projector), self.momentum)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="glyphs:2000", help="a folder, a table, or built-in data")
    parser.add_argument("--out", type=Path, default=Path("runs/new-method"), help="the run folder")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args(arguments)
    nearfar.train(
        options.data,
        out=options.out,
        method="new_method:HardTwins",  # a name, so that `nearfar train --resume` finds it again
        backbone="strokes",
        epochs=options.epochs,
        options={"beta": 0.5},
    )
    results = Results.load(options.out / "evaluation.json")
    print({who: results.value(who, "knn") for who in ("trained", "untrained", "prepared", "raw")})


if __name__ == "__main__":
    main()
