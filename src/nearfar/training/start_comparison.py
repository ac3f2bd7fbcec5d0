"""Is an adapted encoder better than its start? Asked of held-out samples, without labels.

Training makes the views of a sample alike, so a criterion of that alone always says "better", also of an encoder that
has forgotten what it knew. Two things are asked here of the nearest neighbors that an encoder gives a view: are they
those that it gives the whole sample (stability), and are they those that the *start* gives the whole sample (memory)?
For the start both are the same number. Training raises the one and lowers the other; the score is the root of their
product, so an encoder that gains more than it forgets is better (docs/how-to/weights.md).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding import device_of, evaluation_mode
from nearfar.losses.arguments import l2_normalize
from nearfar.methods import Method
from nearfar.modalities.base import Modality
from nearfar.nn.seeding import seeded_generator

SAMPLES = 500  # held-out samples that are compared, at most
NEIGHBORS = 10
LEAST_GAIN = 0.001  # less is rounding
CHECKS = 4  # in a run, at equal distances; the last at its end


@dataclass(frozen=True)
class Score:
    """An encoder beside the start.

    Attributes:
        start: of the start, from 0 to 1.
        encoder: of the encoder, the root of stability · memory.
        gain: the difference.
        error: its standard error over the samples.
    """

    start: float
    encoder: float
    gain: float
    error: float


class StartComparison:
    """Measures an encoder beside the start that it was trained from.

    Args:
        make_start: makes the network as the run began, on its device; called when something is measured first.
        modality: prepares samples and makes their views, always the same.
        samples: held-out samples.
    """

    def __init__(self, make_start: Callable[[], nn.Module], modality: Modality, samples: Dataset) -> None:
        self.make_start, self.modality, self.samples = make_start, modality, samples
        self.rows = torch.linspace(0, len(samples) - 1, min(SAMPLES, len(samples))).long()  # (N,)

    def prepare(self) -> None:
        """Measure the start."""
        _ = self._start

    def due(self, step: int, total: int, *, epoch_ends: bool, logged: bool) -> bool:
        """At equal parts of the run."""
        return step in {round(total * part / CHECKS) for part in range(1, CHECKS + 1)}

    def measure(self, method: Method) -> dict[str, float]:
        """The score of a method's encoder, by name; empty if views do not differ, so that nothing can be told."""
        score = self.score_of(method.encoder)
        if score is None:
            return {}
        return {"start_score": score.start, "score": score.encoder, "gain": score.gain, "gain_error": score.error}

    @staticmethod
    def score(found: Mapping[str, float | list[float]]) -> float | None:
        """Higher is better; above 0: better than the start by more than chance."""
        gain, error = found.get("gain"), found.get("gain_error")
        if not isinstance(gain, float) or not isinstance(error, float):
            return None
        return gain - max(error, LEAST_GAIN)

    def score_of(self, network: nn.Module) -> Score | None:
        """An encoder beside the start; None if two views of a sample do not differ."""
        reference, embedded = self._start, self._embedded(network)
        if reference is None or embedded is None:
            return None
        of_start, (whole, *views) = reference[1], embedded
        if not all(bool(x.isfinite().all()) for x in embedded):
            return paired_gain(torch.zeros_like(of_start), of_start)
        stability = _mean_overlap(views, whole, nearest_others(whole, whole, NEIGHBORS))
        return paired_gain(geometric_mean(stability, _mean_overlap(views, whole, reference[0])), of_start)

    @cached_property
    def _start(self) -> tuple[Tensor, Tensor] | None:
        """(N, k) the start's neighbors of each sample, and (N,) the part of them that it finds from views."""
        embedded = self._embedded(self.make_start())
        if embedded is None:
            return None
        whole, *views = embedded
        neighbors = nearest_others(whole, whole, NEIGHBORS)
        return neighbors, _mean_overlap(views, whole, neighbors)

    @torch.no_grad()
    def _embedded(self, network: nn.Module) -> list[Tensor] | None:
        """(N, F) of the samples and of two views of each, centred; None if the views do not differ."""
        device, found = device_of(network), []
        with evaluation_mode(network):
            for number, part in enumerate(self.rows.split(256)):
                samples = self.samples.fetch(part).to(device)
                inputs = [self.modality.prepare(samples), *self._views(samples, part, number)]
                found.append([self.modality.run_encoder(network, x, self.modality.queries[0]) for x in inputs])
        joined = [torch.cat(each).float().cpu() for each in zip(*found, strict=True)]
        mean = joined[0].mean(0)
        return None if torch.equal(joined[1], joined[2]) else [x - mean for x in joined]

    def _views(self, samples: Tensor, part: Tensor, number: int) -> list[Tensor]:
        """As in training; if dropout alone makes those, other views that change the samples themselves."""
        views = self.modality.pair_of_views(samples, self.samples, part, seed=0, step=number)[:2]
        if views[0] is not views[1]:
            return views
        draws = (seeded_generator(number, place, 0) for place in range(2))
        return [self.modality.prepare(self.modality.vary(samples, draw)) for draw in draws]


def _mean_overlap(views: Sequence[Tensor], whole: Tensor, neighbors: Tensor) -> Tensor:
    """(N,) the part of the neighbors among those of each view, mean of the views."""
    return torch.stack([overlap(nearest_others(view, whole, NEIGHBORS), neighbors) for view in views]).mean(0)


def nearest_others(queries: Tensor, keys: Tensor, k: int) -> Tensor:
    """(N, k), the rows of `keys` that are most similar to each row of `queries` by cosine, but for its own.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> nearest_others(x, x, 1).T
    tensor([[1, 0, 1]])
    """
    similarity = (l2_normalize(queries) @ l2_normalize(keys).T).fill_diagonal_(-torch.inf)  # (N, N)
    return similarity.topk(min(k, len(keys) - 1)).indices


def overlap(found: Tensor, expected: Tensor) -> Tensor:
    """(N, k) and (N, k) to (N,): the part of the expected that was found.

    >>> overlap(torch.tensor([[1, 2], [0, 3]]), torch.tensor([[2, 5], [4, 5]]))
    tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    return (expected[:, :, None] == found[:, None, :]).any(2).double().mean(1)


def geometric_mean(a: Tensor, b: Tensor) -> Tensor:
    """(N,), of two quantities of N samples: the root of the product of their means, told apart by samples.

    The mean is that root, and each sample has its share of it to first order, so that its spread gives the error.

    >>> geometric_mean(torch.tensor([0.2, 0.4]), torch.tensor([0.9, 1.5])).mean()
    tensor(0.6000)
    """
    root = (a.mean() * b.mean()).sqrt()
    return (b.mean() * a + a.mean() * b) / (2 * root) if root > 0 else torch.zeros_like(a)


def paired_gain(encoder: Tensor, start: Tensor) -> Score:
    """What (N,) values of the same samples say: their means, and the difference with its standard error."""
    gain = encoder - start
    error = float(gain.std()) / math.sqrt(len(gain))
    return Score(float(start.mean()), float(encoder.mean()), float(gain.mean()), error)
