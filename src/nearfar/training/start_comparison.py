"""Is an adapted encoder better than its start? Asked of held-out samples, without labels.

Training makes views of a sample alike, so a criterion of that alone always says "better", also of an encoder that has
forgotten what it knew. Here a view must find the neighbors that the *start* gives the whole sample. An encoder that
sees through the views finds more of them than the start itself does; one that has forgotten what makes samples alike
finds fewer.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding_transform import embedded_views
from nearfar.losses.arguments import l2_normalize
from nearfar.methods import Method
from nearfar.modalities.base import Modality
from nearfar.model.encoder import Encoder
from nearfar.nn.whitening import fit_transform

SAMPLES = 500  # held-out samples that are compared, at most
NEIGHBORS = 10
CHECKS = 4  # in a run, at equal distances; the last at its end


@dataclass(frozen=True)
class Score:
    """An encoder beside the start.

    Attributes:
        start, encoder: part of the start's neighbors that views find, by each.
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
        return gain - error if isinstance(gain, float) and isinstance(error, float) else None

    def score_of(self, network: nn.Module) -> Score | None:
        """An encoder beside the start; None if two views of a sample do not differ."""
        reference, embedded = self._start, self._embedded(network)
        if reference is None or embedded is None:
            return None
        neighbors, of_start = reference
        return paired_gain(self._found(embedded, neighbors), of_start)

    @cached_property
    def _start(self) -> tuple[Tensor, Tensor] | None:
        """(N, k) the start's neighbors of each sample, and (N,) the part of them that it finds from views."""
        embedded = self._embedded(self.make_start())
        if embedded is None:
            return None
        neighbors = nearest_others(embedded[0], embedded[0], NEIGHBORS)
        return neighbors, self._found(embedded, neighbors)

    def _found(self, embedded: Sequence[Tensor], neighbors: Tensor) -> Tensor:
        """(N,) the part of the neighbors among those that an encoder gives the views."""
        whole, *views = embedded
        if len(whole) < len(neighbors):  # some were not finite
            return torch.zeros(len(neighbors), dtype=torch.float64)
        return torch.stack([overlap(nearest_others(view, whole, NEIGHBORS), neighbors) for view in views]).mean(0)

    def _embedded(self, network: nn.Module) -> list[Tensor] | None:
        """(N, F) of the samples and of each view, whitened by the samples."""
        found = embedded_views(Encoder(network, self.modality, {}), self.samples, self.rows)
        if found is None:
            return None
        transform = fit_transform(found[0], "whitened")
        assert transform is not None
        return [transform(x) for x in found]


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


def paired_gain(encoder: Tensor, start: Tensor) -> Score:
    """What (N,) values of the same samples say: their means, and the difference with its standard error."""
    gain = encoder - start
    error = float(gain.std()) / math.sqrt(len(gain))
    return Score(float(start.mean()), float(encoder.mean()), float(gain.mean()), error)
