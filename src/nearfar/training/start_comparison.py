"""Is an adapted encoder better than its start? Asked of held-out samples, without labels.

Training makes the views of a sample alike, so a criterion of that alone always says "better", also of an encoder that
has forgotten what it knew. Two things are asked here of the nearest neighbors that an encoder gives a view: are they
those that it gives the whole sample (stability), and are they those that the *start* gives the whole sample (memory)?
For the start both are the same number. Training raises the one and lowers the other; the score is the root of their
product, so an encoder that gains more than it forgets is better (docs/how-to/weights.md).

A start that knows its samples well has little to gain there, and small steps forget little. So an encoder is better,
too, if its views find their own samples more often than the start's do, and most neighbors of the whole samples are
still those of the start.
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
MOST = 0.6  # of the start's neighbors, which are still neighbors where little was forgotten
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


@dataclass(frozen=True)
class BesideStart:
    """An encoder beside the start, in three ways.

    Attributes:
        neighbors: the score by stability and memory.
        own: part of the views whose most similar sample is their own.
        remembered: part of the start's neighbors of whole samples that are still neighbors.
    """

    neighbors: Score
    own: Score
    remembered: float


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
        found = self.compare(method.encoder)
        if found is None:
            return {}
        score, own = found.neighbors, found.own
        return {
            "start_score": score.start,
            "score": score.encoder,
            "gain": score.gain,
            "gain_error": score.error,
            "start_own": own.start,
            "own": own.encoder,
            "own_gain": own.gain,
            "own_error": own.error,
            "remembered": found.remembered,
        }

    @staticmethod
    def score(found: Mapping[str, float | list[float]]) -> float | None:
        """Higher is better; above 0: better than the start by more than chance, above 1: by its neighbors."""
        names = ("gain", "gain_error", "own_gain", "own_error", "remembered")
        gain, error, own, own_error, remembered = (found.get(name) for name in names)
        if not isinstance(gain, float) or not isinstance(error, float):
            return None
        by_neighbors = gain - max(error, LEAST_GAIN)
        if by_neighbors > 0:
            return 1 + by_neighbors
        if isinstance(own, float) and isinstance(own_error, float) and isinstance(remembered, float):
            by_own = own - max(own_error, LEAST_GAIN)
            if by_own > 0 and remembered >= MOST:
                return by_own
        return by_neighbors

    def compare(self, network: nn.Module) -> BesideStart | None:
        """An encoder beside the start; None if two views of a sample do not differ."""
        reference, embedded = self._start, self._embedded(network)
        if reference is None or embedded is None:
            return None
        neighbors, of_start, own_of_start = reference
        whole, *views = embedded
        if not all(bool(x.isfinite().all()) for x in embedded):
            nothing = torch.zeros_like(of_start)
            return BesideStart(paired_gain(nothing, of_start), paired_gain(nothing, own_of_start), 0.0)
        now = nearest_others(whole, whole, NEIGHBORS)
        root = geometric_mean(_mean_overlap(views, whole, now), _mean_overlap(views, whole, neighbors))
        own = paired_gain(_find_own(views, whole), own_of_start)
        return BesideStart(paired_gain(root, of_start), own, float(overlap(now, neighbors).mean()))

    @cached_property
    def _start(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """(N, k) the start's neighbors; (N,) the part of them that views find, and of the views that find their own."""
        embedded = self._embedded(self.make_start())
        if embedded is None:
            return None
        whole, *views = embedded
        neighbors = nearest_others(whole, whole, NEIGHBORS)
        return neighbors, _mean_overlap(views, whole, neighbors), _find_own(views, whole)

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


def _find_own(views: Sequence[Tensor], whole: Tensor) -> Tensor:
    """(N,) the part of the views of each sample that are more similar to it than to any other."""
    samples = l2_normalize(whole)
    found = [(l2_normalize(view) @ samples.T).argmax(1) == torch.arange(len(whole)) for view in views]
    return torch.stack(found).double().mean(0)


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
