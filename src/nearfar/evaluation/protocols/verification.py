"""Verification: same class or not, by a threshold on the similarity."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.evaluation.metrics import Estimate, resamples, with_interval
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Task, arrays
from nearfar.losses.arguments import check_ids, check_rows, l2_normalize
from nearfar.metric_text import MetricStyle
from nearfar.settings import setting

FALSE_RATES = (0.1, 0.01, 0.001)  # at which the true accept rate is reported
_MAX_BOOTSTRAP = 100  # each resample sorts all pairs


@dataclass(frozen=True)
class VerificationSettings:
    """Protocol verification: same or different class?"""

    max_pairs: int = setting(20_000, "pairs of each kind that are compared, at most", least=1)


def verification(task: Task, settings: VerificationSettings, seed: int) -> Outcome:
    """As many same-class as different-class pairs; the bootstrap resamples samples, since pairs share them."""
    labels, count = task.test.labels, min(_MAX_BOOTSTRAP, task.bootstrap)
    pairs = draw_pairs(labels, most=settings.max_pairs, seed=seed)
    similarity = pair_similarity(task.test_features, pairs)
    curve, n = roc(similarity, pairs.same), len(similarity)
    found = _metrics(curve, n // 2)
    draws: dict[str, list[float]] = {name: [] for name in found}
    for weights in resamples(labels, count=count, seed=seed):
        for w in weights:
            often = (w[pairs.first] * w[pairs.second]).long()  # (P,)
            same = pairs.same.repeat_interleave(often)
            if not 0 < int(same.sum()) < len(same):
                continue
            for name, value in _metrics(roc(similarity.repeat_interleave(often), same), n // 2).items():
                draws[name].append(value)
    metrics = {
        name: with_interval(value, torch.tensor(draws[name]), n) if draws[name] else Estimate(value, None, None, n)
        for name, value in found.items()
    }
    curves = {"false_rate": curve.false_rate, "true_rate": curve.true_rate}
    return Outcome(metrics, curves | arrays(similarity=similarity, same=pairs.same))


def _metrics(curve: "Roc", negatives: int) -> dict[str, float]:
    found = {"AUC": curve.auc, "EER": curve.equal_error_rate}
    for false_rate in FALSE_RATES:
        if false_rate * negatives >= 10:  # fewer pairs cannot resolve so small a rate
            found[f"TAR@FAR={false_rate:g}"] = curve.true_rate_at(false_rate)
    return found


class VerificationPairs(NamedTuple):
    """Pairs of rows, and whether they are of one class."""

    first: Tensor  # (P,)
    second: Tensor  # (P,)
    same: Tensor  # (P,) booleans


class Roc(NamedTuple):
    """The trade between accepting the wrong and rejecting the right."""

    false_rate: NDArray[np.float64]  # rising from 0 to 1
    true_rate: NDArray[np.float64]
    auc: float

    @property
    def equal_error_rate(self) -> float:
        """Where as many wrong pairs are accepted as right ones rejected, between the two points around it.

        >>> Roc(np.array([0.0, 0.2, 1.0]), np.array([0.0, 0.8, 1.0]), 0.8).equal_error_rate
        0.2
        """
        excess = self.false_rate - (1 - self.true_rate)  # rises from -1 to 1
        i = int(np.argmax(excess >= 0))
        if excess[i] == 0 or i == 0:
            return float(self.false_rate[i])
        part = -excess[i - 1] / (excess[i] - excess[i - 1])
        return float(self.false_rate[i - 1] + part * (self.false_rate[i] - self.false_rate[i - 1]))

    def true_rate_at(self, false_rate: float) -> float:
        """The largest true accept rate of a threshold that keeps the false accept rate within `false_rate`."""
        return float(self.true_rate[self.false_rate <= false_rate * (1 + 1e-6)].max())


def draw_pairs(labels: Tensor, *, most: int, seed: int) -> VerificationPairs:
    """As many same-class as different-class pairs, at most `most` of each, no pair twice.

    Args:
        labels: (N,) integers.
        most: pairs of each kind.
        seed: of the draw.
    """
    labels, generator = labels.cpu(), torch.Generator().manual_seed(seed)
    n = len(labels)
    same_in_all = sum(c * (c - 1) // 2 for c in labels.unique(return_counts=True)[1].tolist())
    wanted = min(most, same_in_all, n * (n - 1) // 2 - same_in_all)
    if wanted == 0:
        raise ValueError(
            f"{n} rows with {len(labels.unique())} different labels make no pair of one kind, expected at least two "
            "rows of one class and one of another"
        )
    chosen: list[Tensor] = []
    for kind in (True, False):
        pairs = torch.zeros(0, dtype=torch.long)  # a pair i < j as the number i N + j
        while len(pairs) < wanted:
            new = _candidates(labels, kind, 2 * wanted + 16, generator)
            pairs = torch.cat([pairs, new]).unique()
        chosen.append(pairs[torch.randperm(len(pairs), generator=generator)[:wanted]])
    codes = torch.cat(chosen)
    return VerificationPairs(codes // n, codes % n, torch.arange(2 * wanted) < wanted)


def _candidates(labels: Tensor, same: bool, count: int, generator: torch.Generator) -> Tensor:
    """Some pairs i < j of the wanted kind as the numbers i N + j, each pair as likely as any other."""
    n = len(labels)
    order = labels.argsort(stable=True)  # classes are blocks of this order
    sizes = labels[order].unique_consecutive(return_counts=True)[1]
    size = sizes.repeat_interleave(sizes)  # (N,) of each row's block, and where it starts
    start = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    partners = size - 1 if same else n - size
    first = torch.multinomial(partners.double(), count, replacement=True, generator=generator)
    place = (torch.rand(count, generator=generator, dtype=torch.float64) * partners[first]).long()
    if same:  # in the block, itself passed over
        second = start[first] + place
        second += second >= first
    else:  # outside the block
        second = place + size[first] * (place >= start[first])
    i, j = order[first], order[second]
    return torch.minimum(i, j) * n + torch.maximum(i, j)


@torch.no_grad()
def pair_similarity(z: Tensor, pairs: VerificationPairs) -> Tensor:
    """(P,) cosines of the pairs, a few at a time."""
    check_rows("z", z)
    check_ids("first", pairs.first.to(z.device), len(pairs.first), z)
    u = l2_normalize(z).cpu()
    parts = zip(pairs.first.split(4096), pairs.second.split(4096), strict=True)
    return torch.cat([(u[i] * u[j]).sum(1) for i, j in parts])


def roc(similarity: Tensor, same: Tensor) -> Roc:
    """The ROC curve of (P,) similarities against (P,) booleans, by torchmetrics."""
    from nearfar import _torchvision  # noqa: F401, before torchmetrics

    import torchmetrics.functional.classification as tm  # isort: skip

    score = ((similarity.double() + 1) / 2).clamp(0, 1)  # else it would be taken for a logit, and rounded
    false_rate, true_rate, _ = tm.binary_roc(score, same.long())
    return Roc(
        false_rate.numpy().astype(np.float64),
        true_rate.numpy().astype(np.float64),
        float(tm.binary_auroc(score, same.long())),
    )


PROTOCOL = Protocol(
    "verification",
    verification,
    "same or different class: AUC, EER, TAR@FAR",
    "AUC",
    VerificationSettings,
    seeded=True,
    title="Verification",
    metrics={"EER": MetricStyle(less_is_better=True)},
)
