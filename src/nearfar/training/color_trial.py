"""Whether colors are content or nuisance, found in a short trial before the run.

Views that change colors teach an encoder to ignore them. That is right where a red and a blue shirt are both shirts,
and costs more than anything else where a lemon and a lime differ by color alone. Two small encoders are trained for a
few seconds, one with colors kept and one with colors varied; the better one has more neighbors with the same label or
in the same folder. Without labels and folders nothing can tell, and colors vary mildly: between the two, never far from
the better.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from nearfar.config import TrainConfig, seconds_in
from nearfar.data.dataset import Dataset
from nearfar.data.loader import Loader
from nearfar.evaluation.embedding import embed
from nearfar.methods import known_method
from nearfar.modalities import make_modality
from nearfar.modalities.config import ColorChange, ViewsConfig
from nearfar.progress import print_line
from nearfar.training.config import OptimizerConfig
from nearfar.training.processes import is_rank_zero
from nearfar.training.setup import TrainingSetup
from nearfar.training.time_budget import config_of_rank_zero
from nearfar.training.trial import Trial

SAMPLES, SIZE, BATCH = 2000, 32, 64
STEPS, LEAST_STEPS = 60, 20
NEIGHBORS = 5
CLEAR = 2.0  # standard errors of the mean difference
_STEPS_PER_SECOND = 10.0  # about, on one core


def choose_colors(setup: TrainingSetup, folder: Path, console: Console) -> float:
    """Turn `views.color` "auto" into "keep", "mild" or "vary", the same on every rank.

    Rank 0 tries and writes `config.yaml`; other ranks read it there. A resumed run has its colors already.

    Returns:
        The seconds that it took.
    """
    if setup.config.views.color != "auto":
        return 0.0
    if not is_rank_zero():
        color = config_of_rank_zero(folder, lambda config: config.views.color != "auto").views.color
        assert color is not None and color != "auto"
        setup.set_color(color, "as on rank 0")
        return 0.0
    start = time.perf_counter()
    color, why = _choice(setup)
    setup.set_color(color, why)
    print_line(console, f"chosen: views.color {color}: {why}")
    return time.perf_counter() - start


def _choice(setup: TrainingSetup) -> tuple[ColorChange, str]:
    steps, spread = trial_steps(setup), torch.Generator().manual_seed(setup.config.seed)
    rows = torch.randperm(len(setup.train), generator=spread)[:SAMPLES].sort().values
    data = setup.train.subset(rows)
    known = same_kind(data)
    if known is None:
        return "mild", "no labels or folders tell whether colors matter; --views.color keep or vary if you know"
    if steps < LEAST_STEPS:
        return "mild", "the run is too short to try what fits; --views.color keep or vary if you know"
    kinds, what = known
    kept, varied = (neighbors_of_kind(_features(setup, data, color, steps), kinds) for color in ("keep", "vary"))
    color = better(kept, varied)
    told = f"{kept.mean():.0%} of neighbors share a {what} with colors kept, {varied.mean():.0%} with colors varied"
    return color, f"in a trial of {steps} steps, {told}"


def trial_steps(setup: TrainingSetup) -> int:
    """Steps of each of the two trials: at most about a tenth of the run."""
    config = setup.config
    if config.time is not None and config.steps is None:
        return min(STEPS, int(seconds_in(config.time) / 20 * _STEPS_PER_SECOND))
    return min(STEPS, setup.total_steps // 10)


def same_kind(data: Dataset) -> tuple[Tensor, str] | None:
    """(N,) numbers that are equal for samples of one label, or of one folder, and which of the two; -1: unknown.

    None where they say nothing: all samples are alike, or hardly any two.
    """
    for found, what in ((data.labels, "label"), (folders(data.names), "folder")):
        if found is None:
            continue
        counts = torch.bincount(found[found >= 0], minlength=1)
        if (counts >= 3).sum() >= 2 and counts[counts >= 3].sum() >= len(found) / 2:
            return found, what
    return None


def folders(names: Sequence[str]) -> Tensor:
    """(N,) the number of the folder that each sample lies in.

    >>> folders(["cat/1.png", "dog/1.png", "cat/2.png"]).tolist()
    [0, 1, 0]
    """
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(str(PurePosixPath(name).parent), len(numbers)) for name in names])


def neighbors_of_kind(features: Tensor, kinds: Tensor, k: int = NEIGHBORS) -> Tensor:
    """(N, F) and (N,) to (M,): of the M samples of known kind, how many of k neighbors are of the same, in [0, 1].

    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.0], [-1.0, 0.1], [-1.0, 0.0]])
    >>> neighbors_of_kind(features, torch.tensor([0, 0, 1, 1]), 1)
    tensor([1., 1., 1., 1.])
    """
    known = kinds >= 0
    x, kinds = F.normalize(features[known] - features[known].mean(0)), kinds[known]
    similarity = (x @ x.T).fill_diagonal_(-math.inf)
    nearest = similarity.topk(min(k, len(x) - 1)).indices
    return (kinds[nearest] == kinds[:, None]).float().mean(1)


def better(kept: Tensor, varied: Tensor) -> ColorChange:
    """Which of two trials has more neighbors of the same kind, sample by sample; "mild" if that is not clear.

    >>> better(torch.tensor([1.0, 0.8, 1.0, 0.9]), torch.tensor([0.2, 0.1, 0.3, 0.0]))
    'keep'
    """
    gain = kept - varied
    error = gain.std() / math.sqrt(len(gain))
    if gain.mean().abs() <= CLEAR * error:
        return "mild"
    return "keep" if gain.mean() > 0 else "vary"


def _features(setup: TrainingSetup, data: Dataset, color: ColorChange, steps: int) -> Tensor:
    """(N, F): of a small encoder trained with these colors."""
    config = trial_config(setup.config, color, len(data))
    modality = make_modality(config)
    trial = Trial(config, modality, data, setup.device, None)
    for _ in trial.steps(Loader(len(data), config.batch_size, config.seed), steps):
        pass
    return embed(trial.method.encoder, data, prepare=modality.prepare, device=setup.device)


def trial_config(config: TrainConfig, color: ColorChange, samples: int) -> TrainConfig:
    """The default method at a few pixels, whatever the run's own is: it learns most in a few seconds."""
    method = known_method(TrainConfig.method)
    return TrainConfig(
        data=config.data,
        modality="image",
        method=method.name,
        seed=config.seed,
        device=config.device,
        precision=config.precision,
        backbone="quick",
        image_size=SIZE,
        batch_size=min(BATCH, samples),
        options=dict(method.short_run["options"]),
        optimizer=OptimizerConfig(name="muon"),
        views=ViewsConfig(preset="photos", count=2, color=color),
    )
