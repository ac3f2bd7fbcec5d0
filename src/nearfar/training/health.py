"""Is the run well? What is measured, and what it means in plain words."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nearfar.evaluation.geometry import alignment, deviation, effective_rank, similarity_histograms, uniformity
from nearfar.losses import top_k_similarity
from nearfar.losses.arguments import l2_normalize
from nearfar.methods.advice import Verdict
from nearfar.methods.method import Horizon, Step

_ROWS = 1024  # of a batch that are looked at
_QUERIES = 256  # of each horizon that are looked at
_FEWEST = 8  # rows, of which the rank tells collapse from a small batch
_ONE_POINT = 2.0  # a rank below it is that of embeddings that are all but one
_NEAR = 1.5  # times the rank of a collapse, up to which it is not well either


@torch.no_grad()
def measure(step: Step) -> dict[str, float | list[float]]:
    """What the embeddings of one batch look like: cheap, from what the loss has already compared."""
    z1, z2 = l2_normalize(step.z1[:_ROWS].detach().float()), l2_normalize(step.z2[:_ROWS].detach().float())
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
    ceiling = math.log(1 + horizon.drawn) if horizon.drawn else float((1 + negative.sum(1)).float().log().mean())
    return float(first.float().mean()), ceiling


def twins_found(z1: Tensor, z2: Tensor) -> float:
    """The part of the rows of z1 whose most similar row of z2 is their own: contrastive accuracy."""
    _, nearest = top_k_similarity(z1, z2, k=1)
    return float((nearest[:, 0] == torch.arange(len(z1), device=z1.device)).float().mean())


def judge(found: dict[str, float | list[float]], step: int, total: int) -> list[Verdict]:
    """What the measures say, in plain words, with what to do."""
    rank, limit = _value(found, "effective_rank"), _value(found, "rank_limit")
    loss, ceiling, bound = _value(found, "loss"), _value(found, "ceiling"), _value(found, "bound")
    early = step <= max(1, total // 10)
    at_chance = loss is not None and ceiling is not None and abs(loss - ceiling) < 0.02 * ceiling
    of_rank, said = _of_rank(found, late=step > total // 4), []
    # One point has the loss log N, too. Any other low rank at that loss is of an encoder that has not learned yet: it
    # needs a higher rate, where a collapse needs a lower one.
    one_point = rank is not None and rank < _ONE_POINT and not early
    if at_chance and not (of_rank is not None and one_point):
        said.append(
            Verdict(
                "note" if early else "warning",
                "nothing_learned",
                f"loss {loss:.2f} is log({math.exp(ceiling or 0.0):.0f}): nothing learned yet"
                + ("" if early else "; raise the learning rate, or look for identical or shuffled views"),
            )
        )
    elif of_rank is not None:
        said.append(of_rank)
    if bound is not None and ceiling is not None and bound > 0.98 * ceiling:
        said.append(
            Verdict(
                "note",
                "ceiling",
                f"the loss {ceiling - bound:.2f} is close to 0: batches of this size teach nothing more; use a larger "
                "batch or queue, or stronger views",
            )
        )
    similar = _value(found, "positive_similarity")
    if similar is not None and rank is not None and limit is not None and similar > 0.995 and rank > 0.1 * limit:
        said.append(
            Verdict(
                "warning",
                "weak_views",
                f"positive pairs are nearly identical (similarity {similar:.3f}): views too weak; use a "
                "stronger preset (--views)",
            )
        )
    fill = _value(found, "queue_fill")
    if fill is not None and fill < 1:
        said.append(
            Verdict("note", "queue", f"the queue is {fill:.0%} full; until it is full, a rising loss is normal")
        )
    return said


def _of_rank(found: dict[str, float | list[float]], *, late: bool) -> Verdict | None:
    """A rank that is a collapse, or so near to one that it is not well either."""
    rank, limit, dimensions = (_value(found, name) for name in ("effective_rank", "rank_limit", "dimensions"))
    if rank is None or limit is None or dimensions is None or limit < _FEWEST or rank >= _NEAR * _collapsed(limit):
        return None
    way_out = "lower the learning rate, raise the temperature, strengthen the views, or try negatives if there are none"
    if rank >= _collapsed(limit):
        words = f"effective rank {rank:.3g} of at most {limit:.0f} is low, little above a collapse"
        return Verdict("warning", "low_rank", f"{words}; if it stays so, {way_out}")
    words = f"effective rank {rank:.0f} of {dimensions:.0f}: collapse"
    return Verdict("error" if late else "warning", "collapse", f"{words}; {way_out}")


def _collapsed(limit: float) -> float:
    """The rank below which embeddings have collapsed."""
    return max(_ONE_POINT, 0.05 * limit)


def well(found: dict[str, float | list[float]]) -> Verdict:
    """What is said when nothing is wrong: that all is well only where there is enough to tell it by."""
    rank, limit = _value(found, "effective_rank") or math.nan, _value(found, "rank_limit") or math.nan
    words = f"effective rank {rank:.3g} of at most {limit:.0f}"
    if limit < _FEWEST:
        return Verdict("note", "well", f"{words}: too few rows or dimensions to tell a collapse by")
    if "bound" in found:
        bound, ceiling = _value(found, "bound") or 0.0, _value(found, "ceiling") or 0.0
        perplexity = _value(found, "perplexity")  # the bound is never below 0, the loss may be above its ceiling
        loss = ceiling - bound if perplexity is None else math.log(perplexity)
        words += f"; loss {loss:.2f}, where {ceiling:.2f} means nothing learned"
    if rank < _NEAR * _collapsed(limit):
        return Verdict("note", "well", words)
    return Verdict("good", "well", f"no collapse, {words}")


def _value(found: dict[str, float | list[float]], name: str) -> float | None:
    x = found.get(name)
    return x if isinstance(x, float) else None


def not_finite(step: int, checkpoint: str) -> str:
    """What is said when the loss is NaN or infinite."""
    return (
        f"loss is not finite at step {step}: training stops; the last good checkpoint is {checkpoint}; "
        "lower the learning rate, clip the gradient (--optimizer.clip-norm 1), or set --precision 32"
    )
