"""Contrastive predictive coding as the paper has it, one prediction at a time."""

import torch
from torch import Tensor


def cpc(
    z: Tensor, c: Tensor, w: Tensor, lengths: list[int], ids: list[int], negatives: str
) -> tuple[Tensor, list[list[Tensor]]]:
    """The mean over horizons of the mean InfoNCE, and the losses by horizon.

    Args:
        z: (B, L, D) latents.
        c: (B, L, C) contexts.
        w: (K, D, C) one matrix for each horizon.
        lengths: frames of each sequence.
        ids: sequences with equal ids are no negatives of each other; for "both", nor of themselves.
        negatives: "both", "batch" or "sequence".
    """
    by_horizon: list[list[Tensor]] = []
    for k in range(1, len(w) + 1):
        places = [(b, t) for b in range(len(z)) for t in range(lengths[b] - k)]
        losses = []
        for b, t in places:
            alone = ids.count(ids[b]) == 1
            prediction = w[k - 1] @ c[b, t]
            scores = [prediction @ z[b, t + k]]
            for other, time in places:
                if (other, time) == (b, t):
                    continue
                same = other == b
                counts = {
                    "both": alone if same else ids[other] != ids[b],
                    "batch": not same and ids[other] != ids[b],
                    "sequence": same,
                }
                if counts[negatives]:
                    scores.append(prediction @ z[other, time + k])
            logits = torch.stack(scores)
            losses.append(logits.logsumexp(0) - logits[0])
        if losses:
            by_horizon.append(losses)
    return torch.stack([torch.stack(losses).mean() for losses in by_horizon]).mean(), by_horizon
