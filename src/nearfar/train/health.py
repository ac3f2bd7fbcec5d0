"""Is the run well? What is measured, and what it means in plain words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nearfar.evaluate.geometry import alignment, deviation, effective_rank, similarity_histograms, uniformity
from nearfar.losses import top_k_similarity
from nearfar.losses.arguments import unit
from nearfar.methods.method import Horizon, Step

Level = Literal["good", "note", "warning", "error"]
_ROWS = 1024  # of a batch that are looked at
_QUERIES = 256  # of each horizon that are looked at
_FEWEST = 8  # rows, of which the rank tells collapse from a small batch


@dataclass(frozen=True)
class Verdict:
    """One sentence about the run, and what to do."""

    level: Level
    name: str  # of the rule, so that it is said once until it changes
    text: str


@torch.no_grad()
def measure(step: Step) -> dict[str, float | list[float]]:
    """What the embeddings of one batch look like: cheap, from what the loss has already compared."""
    z1, z2 = unit(step.z1[:_ROWS].detach().float()), unit(step.z2[:_ROWS].detach().float())
    loss = float(step.log.get("info_nce", step.loss).detach())  # where the loss is scaled, the InfoNCE in it
    histograms = similarity_histograms(z1, z2)
    found: dict[str, float | list[float]] = {
        "alignment": float(alignment(z1, z2)),
        "uniformity": float(uniformity(z1)),
        "effective_rank": float(effective_rank(z1)),
        "dimensions": float(z1.shape[1]),
        "rank_limit": float(min(z1.shape)),
        "deviation": float(deviation(z1).mean()),
        "accuracy": twins_found(z1, z2),
        "positive_similarity": float((z1 * z2).sum(1).mean()),
        "positives": histograms.positive.tolist(),
        "negatives": histograms.negative.tolist(),
    }
    if step.candidates > 1:
        ceiling = math.log(step.candidates)
        found |= {"ceiling": ceiling, "perplexity": math.exp(min(loss, 50.0))}
        if step.fair is None or bool(step.fair):
            found["bound"] = max(ceiling - loss, 0.0)
    if step.horizons:
        found |= by_horizon(step.horizons)
    return found | {name: float(value) for name, value in step.log.items()}


def by_horizon(horizons: Sequence[Horizon]) -> dict[str, float | list[float]]:
    """Of each horizon how often its key is found, and the bound log N - L beside its ceiling; and their means."""
    looked = [_found_ahead(horizon) for horizon in horizons]
    accuracy, ceiling = [each for each, _ in looked], [each for _, each in looked]
    losses = [float(horizon.loss) for horizon in horizons]
    bound = [max(most - loss, 0.0) for most, loss in zip(ceiling, losses, strict=True)]
    mean = {name: sum(x) / len(x) for name, x in (("accuracy", accuracy), ("bound", bound), ("ceiling", ceiling))}
    return {
        **mean,
        "perplexity": math.exp(min(sum(losses) / len(losses), 50.0)),
        "horizons": [float(horizon.ahead) for horizon in horizons],
        "horizon_accuracy": accuracy,
        "horizon_bound": bound,
        "horizon_ceiling": ceiling,
    }


def _found_ahead(horizon: Horizon) -> tuple[float, float]:
    """The part of some queries whose key is first among their candidates, and their mean log N."""
    many = len(horizon.query)
    rows = torch.linspace(0, many - 1, min(_QUERIES, many), device=horizon.query.device).long()  # (Q,)
    scores = horizon.query[rows].float() @ horizon.key.float().T  # (Q, R)
    own = rows.unsqueeze(1) == torch.arange(many, device=rows.device)
    negative = (horizon.ids[rows].unsqueeze(1) != horizon.ids) & (horizon.among[rows].unsqueeze(1) == horizon.among)
    best = scores.masked_fill(~negative, -torch.inf).amax(1)
    first = scores[own] > best  # a tie is not found
    return float(first.float().mean()), float((1 + negative.sum(1)).float().log().mean())


def twins_found(z1: Tensor, z2: Tensor) -> float:
    """The part of the rows of z1 whose most similar row of z2 is their own: contrastive accuracy."""
    _, nearest = top_k_similarity(z1, z2, k=1)
    return float((nearest[:, 0] == torch.arange(len(z1), device=z1.device)).float().mean())


def judge(found: dict[str, float | list[float]], step: int, total: int) -> list[Verdict]:
    """What the measures say, in plain words, with what to do."""

    def value(name: str) -> float | None:
        x = found.get(name)
        return x if isinstance(x, float) else None

    said = []
    rank, dimensions, limit = value("effective_rank"), value("dimensions"), value("rank_limit")
    if (
        rank is not None
        and dimensions is not None
        and limit is not None
        and limit >= _FEWEST
        and rank < max(2.0, 0.05 * limit)
    ):
        said.append(
            Verdict(
                "error" if step > total // 4 else "warning",
                "collapse",
                f"effective rank {rank:.0f} of {dimensions:.0f}: collapse; lower the learning rate, raise the "
                "temperature, strengthen the views, or choose a method with negatives",
            )
        )
    loss, ceiling, bound = value("loss"), value("ceiling"), value("bound")
    early = step <= max(1, total // 10)
    if loss is not None and ceiling is not None and abs(loss - ceiling) < 0.02 * ceiling:
        said.append(
            Verdict(
                "note" if early else "warning",
                "nothing_learned",
                f"loss {loss:.2f} is log({math.exp(ceiling):.0f}): nothing learned yet"
                + ("" if early else "; raise the learning rate, or look for identical or shuffled views"),
            )
        )
    if bound is not None and ceiling is not None and bound > 0.98 * ceiling:
        said.append(
            Verdict(
                "note",
                "ceiling",
                f"the bound {bound:.2f} has reached its ceiling log N = {ceiling:.2f}: the task is solved; a larger "
                "batch or queue, or stronger views, would teach more",
            )
        )
    similar = value("positive_similarity")
    if similar is not None and rank is not None and limit is not None and similar > 0.995 and rank > 0.1 * limit:
        said.append(
            Verdict(
                "warning",
                "weak_views",
                f"positives identical to the eye (similarity {similar:.3f}): views too weak; use a stronger preset",
            )
        )
    fill = value("queue_fill")
    if fill is not None and fill < 1:
        said.append(
            Verdict("note", "queue", f"the queue is {fill:.0%} full: the loss rises until it is, and that is no fault")
        )
    return said


def well(found: dict[str, float | list[float]]) -> Verdict:
    """What is said when nothing is wrong."""

    def value(name: str) -> float:
        x = found.get(name)
        return x if isinstance(x, float) else math.nan

    words = f"no collapse, effective rank {value('effective_rank'):.3g} of at most {value('rank_limit'):.0f}"
    if "bound" in found:
        words += f"; the bound is {value('bound'):.2f} of at most log N = {value('ceiling'):.2f}"
    return Verdict("good", "well", words)


def not_finite(step: int, checkpoint: str) -> str:
    """What is said when the loss is NaN or infinite."""
    return (
        f"loss is not finite at step {step}: training stops; the last good checkpoint is {checkpoint}; "
        "lower the learning rate, clip the gradient (--optimizer.clip 1), or use precision 32"
    )
