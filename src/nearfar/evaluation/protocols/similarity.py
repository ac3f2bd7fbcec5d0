"""Sentence similarity: do pairs that people find alike have similar embeddings?"""

import torch
from torch import Tensor

from nearfar.devices import in_float64
from nearfar.evaluation.metrics import Estimate, resamples, with_interval
from nearfar.evaluation.paired import SampleValues
from nearfar.evaluation.protocols.protocol import NoSettings, Protocol
from nearfar.evaluation.task import Outcome, Task, arrays
from nearfar.losses.arguments import check_compatible, check_rows, l2_normalize
from nearfar.metric_text import MetricStyle

_DECIMALS = 6  # of a cosine: float32 can tell no more, and equal pairs are to be ties


def similarity(task: Task, settings: NoSettings, seed: int) -> Outcome:
    """Are pairs of sentences as similar as people say?"""
    data = task.test.data
    if data.texts is None or data.partners is None or data.scores is None:
        raise ValueError(f"the {task.test.name} part has no pairs of sentences with scores")
    if task.embedder.cosines is not None:
        cosines = task.embedder.cosines(data.texts, data.partners)
    else:
        cosines = pair_cosines(task.embed_texts(data.texts), task.embed_texts(data.partners))
    return correlation(cosines, data.scores, count=task.bootstrap, seed=seed)


@torch.no_grad()
def pair_cosines(first: Tensor, second: Tensor) -> Tensor:
    """(P,) float64 cosines of (P, D) and (P, D), rounded to six decimals; 0 for a row of zeros.

    >>> pair_cosines(torch.tensor([[1.0, 0.0], [2.0, 2.0]]), torch.tensor([[0.0, 3.0], [1.0, 1.0]])).tolist()
    [0.0, 1.0]
    """
    check_rows("first", first)
    check_rows("second", second)
    check_compatible("first", first, "second", second)
    return in_float64(l2_normalize(first) * l2_normalize(second)).sum(1).round(decimals=_DECIMALS)


def spearman(x: Tensor, y: Tensor) -> float:
    """The rank correlation of (P,) and (P,) numbers; equal numbers share the mean of their ranks.

    >>> spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0, 100.0]))
    1.0
    """
    _check_numbers(x, y)
    once = torch.ones(1, len(x), dtype=torch.float64)
    return float(_correlations(_ranks(x.cpu(), once), _ranks(y.cpu(), once), once))


def pearson(x: Tensor, y: Tensor) -> float:
    """The linear correlation of (P,) and (P,) numbers."""
    _check_numbers(x, y)
    once = torch.ones(1, len(x), dtype=torch.float64)
    return float(_correlations(x.cpu().double()[None], y.cpu().double()[None], once))


def correlation(cosines: Tensor, scores: Tensor, *, count: int = 200, seed: int = 0) -> Outcome:
    """Spearman's and Pearson's correlation of cosines with human scores, with the interval of a bootstrap of pairs.

    Spearman's is the number that papers give: it asks for the order alone, not that cosines be linear in the scores.

    Args:
        cosines: (P,), of `pair_cosines`.
        scores: (P,) human judgements on any scale.
        count, seed: of the bootstrap's resamples.

    Reference: Cer et al. 2017 (STS benchmark), https://arxiv.org/abs/1708.00055; for Spearman's, Reimers et al. 2016,
        https://aclanthology.org/C16-1009
    """
    values = {"Spearman": spearman(cosines, scores), "Pearson": pearson(cosines, scores)}
    x, y = cosines.cpu().double(), scores.cpu().double()
    draws: dict[str, list[Tensor]] = {name: [] for name in values}
    for weights in resamples(torch.zeros(len(x)), count=count, seed=seed):
        w = weights.double()  # (R, P)
        draws["Spearman"].append(_correlations(_ranks(x, w), _ranks(y, w), w))
        draws["Pearson"].append(_correlations(x[None], y[None], w))
    metrics = {}
    for name, value in values.items():
        drawn = torch.cat(draws[name])
        drawn = drawn[drawn.isfinite()]  # a resample of a single value has no correlation
        interval = (
            with_interval(value, drawn, len(x), least=-1.0) if len(drawn) else Estimate(value, None, None, len(x))
        )
        metrics[name] = interval
    samples = {
        "Spearman": SampleValues(x, lambda cosine, w: _correlations(_ranks(cosine, w), _ranks(y, w), w)),
        "Pearson": SampleValues(x, lambda cosine, w: _correlations(cosine[None], y[None], w)),
    }
    return Outcome(metrics, arrays(similarity=x, score=y), samples=samples)


def _ranks(x: Tensor, weights: Tensor) -> Tensor:
    """(R, P) mean ranks of (P,) numbers, each as often as the (R, P) weights say: sorted once for all resamples."""
    group = x.unique(return_inverse=True)[1]  # (P,)
    size = weights.new_zeros(len(weights), int(group.max()) + 1).index_add_(1, group, weights)
    return (size.cumsum(1) - size / 2 + 0.5)[:, group]


def _correlations(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """(R,) weighted linear correlations of (R or 1, P) and (R or 1, P) numbers; NaN where one does not vary."""
    total = weights.sum(1, keepdim=True)
    x, y = (v - (weights * v).sum(1, keepdim=True) / total for v in (x, y))
    xy, xx, yy = ((weights * a * b).sum(1) for a, b in ((x, y), (x, x), (y, y)))
    return (xy / (xx * yy).sqrt()).clamp(-1, 1)


def _check_numbers(x: Tensor, y: Tensor) -> None:
    for name, values in (("cosines", x), ("scores", y)):
        if values.ndim != 1 or len(values) < 2 or len(x) != len(y):
            raise ValueError(
                f"cosines has shape {tuple(x.shape)} and scores {tuple(y.shape)}, expected (P,) twice, of two or more"
            )
        if not bool(values.isfinite().all()):
            raise ValueError(f"{int((~values.isfinite()).sum())} of {len(values)} {name} are not finite")
        if bool((values == values[0]).all()):
            raise ValueError(
                f"all {len(values)} {name} are {float(values[0]):g}: a correlation needs values that differ"
            )


PROTOCOL = Protocol(
    "similarity",
    similarity,
    "pairs of sentences against human scores",
    "Spearman",
    needs="scored pairs",
    reads_texts=True,
    metrics={"Spearman": MetricStyle(3), "Pearson": MetricStyle(3)},
    verdict="first",
)
