"""Did a run from scratch end worse than it began? Asked of training samples that share a label, a folder or a word.

Training makes the views of a sample alike, and no criterion without labels says whether that was of use. So the judge
is that of the trial of views: how many of the nearest neighbors of a sample are of its kind. The loss saw no kinds.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nearfar.evaluation.baselines import calibrated
from nearfar.evaluation.embedding import device_of, embed
from nearfar.nn.whitening import fit_transform
from nearfar.training.build_method import build_method
from nearfar.training.setup import TrainingSetup
from nearfar.training.view_trial import CLEAR, neighbors_of_kind, same_kind

SAMPLES = 2000  # that are compared, at most


@dataclass(frozen=True)
class KeptStart:
    """The start of a run from scratch is what it keeps.

    Attributes:
        samples: of the training part, that were compared.
        shared: what neighbors of one kind share: a label, a folder, or a word in their file names.
        start_share, end_share: part of the nearest neighbors that are of the same kind.
        gain, gain_error: what training gained, below 0, and its standard error over the samples.
    """

    samples: int
    shared: str
    start_share: float
    end_share: float
    gain: float
    gain_error: float
    step: Literal[0] = 0

    def card(self) -> dict[str, Any]:
        """For the card."""
        return {"kept": "start", "line": self.line(), **asdict(self)}

    def line(self) -> str:
        """In words.

        >>> KeptStart(500, "label", 0.31, 0.24, -0.07, 0.01).line()
        'the start is kept: after training 24.0% of the neighbors share a label, before 31.0% (500 training samples)'
        """
        found = f"after training {self.end_share:.1%} of the neighbors share a {self.shared}, before"
        return f"the start is kept: {found} {self.start_share:.1%} ({self.samples:,} training samples)"


def keep_better_start(setup: TrainingSetup) -> KeptStart | None:
    """Give the method its start again if that finds clearly more neighbors of one kind than the end of the run.

    Returns:
        What was found; None: the end stays, since it is not clearly worse or nothing tells samples of one kind.
    """
    if setup.config.adapt.keep == "end" or setup.train.boxed or len(setup.modality.queries) > 1:
        return None
    if (known := same_kind(setup.train)) is None:
        return None
    kinds, shared = known
    rows = (kinds >= 0).nonzero()[:, 0]
    rows = rows[torch.linspace(0, len(rows) - 1, min(SAMPLES, len(rows))).long()]
    encoder = setup.method.encoder
    start = build_method(setup.config, len(setup.train)).encoder.to(device_of(encoder))
    calibrated(start, setup.splits.gallery, setup.modality.prepare)  # as the evaluation does
    before, after = (_shares(each, setup, rows, kinds[rows]) for each in (start, encoder))
    gain = after - before
    error = float(gain.std()) / math.sqrt(len(gain))
    if not float(gain.mean()) < -CLEAR * error:
        return None
    encoder.load_state_dict(start.state_dict())
    return KeptStart(len(rows), shared, float(before.mean()), float(after.mean()), float(gain.mean()), error)


def _shares(encoder: nn.Module, setup: TrainingSetup, rows: Tensor, kinds: Tensor) -> Tensor:
    """(N,) the part of each sample's neighbors that are of its kind, by embeddings as the run will have them."""
    h = embed(encoder, setup.train, prepare=setup.modality.prepare, rows=rows)
    setting = setup.config.embedding
    try:
        transform = fit_transform(h, "whitened" if setting == "auto" else setting)
    except ValueError:  # collapsed, or not finite
        transform = None
    return neighbors_of_kind(h.nan_to_num() if transform is None else transform(h), kinds)
