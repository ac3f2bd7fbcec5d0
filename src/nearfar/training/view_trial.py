"""Which changes of views are content and which are nuisance, found in a short trial before the run.

Views that change colors teach an encoder to ignore them. That is right where a red and a blue shirt are both shirts,
and costs more than anything else where a lemon and a lime differ by color alone. Likewise a mirrored letter is another
letter, a cell has no upright side, and a small part of a digit is no digit. Small encoders are trained for some seconds
each, with one thing changed at a time; the better one has more neighbors with the same label, in the same folder, or
with the same word in the name of their file.
Colors come first, then orientation, then scale, each with what was chosen before. Without any of these, two things can
still be found out: whether colors go with the rest of the pictures (`color_test`), and whether pictures differ from
their mirror images (`mirror_test`).
"""

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

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
from nearfar.modalities.config import VIEW_FACTORS, ViewsConfig
from nearfar.progress import print_line
from nearfar.training import color_test, mirror_test
from nearfar.training.config import OptimizerConfig
from nearfar.training.processes import is_rank_zero
from nearfar.training.setup import TrainingSetup
from nearfar.training.time_budget import config_of_rank_zero
from nearfar.training.trial import Trial

SAMPLES, SIZE, BATCH = 2000, 32, 64
STEPS, LEAST_STEPS = 60, 20
ENOUGH_STEPS = 30  # of each training, if the run allows so many of all: a factor that is not tried costs more
NEIGHBORS = 5
GRAY_SAMPLES, GRAY = 200, 2.0  # mean difference of the largest and the smallest channel, of 255
CLEAR = 2.0  # standard errors of the mean difference
WORD_AND_NUMBER = re.compile(r"(\D*[^\W\d_])[\W_]*\d+[\W_]*")
OF_NO_KIND = {  # words that cameras and programs write
    *("dcim", "dsc", "dscf", "dscn", "frame", "gopr", "image", "img", "item", "mvi", "page", "photo", "pic"),
    *("picture", "pxl", "sample", "scan", "screenshot", "test", "train", "val"),
}
_STEPS_PER_SECOND = 10.0  # about, on one core


@dataclass(frozen=True)
class Factor:
    """A setting of views that a trial decides."""

    name: str
    options: Mapping[str, str]  # those that are tried, and how neighbors were found then
    usual: str  # what is taken unless another is clearly better
    untried: str  # what is taken where nothing can be tried: best on the mean of sets
    margin: float = 0.0  # part of the usual option's neighbors that another must add: what short trials favor


FACTORS = (
    Factor("color", {"keep": "with colors kept", "vary": "with colors varied"}, usual="mild", untried="mild"),
    Factor(
        "orientation",
        {"flip": "mirrored", "keep": "as they stand", "rotate": "turned and mirrored"},
        usual="flip",
        untried="flip",
    ),
    Factor(
        "scale",
        {"vary": "with crops from a fifth", "keep": "with crops from a half"},
        usual="vary",  # large crops are ahead in the first minute, small ones in long runs
        untried="keep",  # a part of a letter costs far more than small crops ever bring
        margin=0.1,
    ),
)


def choose_view_factors(setup: TrainingSetup, folder: Path, console: Console) -> float:
    """Turn each "auto" of `views.color`, `views.orientation` and `views.scale` into an option, the same on every rank.

    Rank 0 tries and writes `config.yaml`; other ranks read it there. A resumed run has its views already.

    Returns:
        The seconds that it took.
    """
    undecided = undecided_factors(setup.config)
    if not undecided:
        return 0.0
    if not is_rank_zero():
        views = config_of_rank_zero(folder, lambda config: not undecided_factors(config)).views
        options = {factor.name: getattr(views, factor.name) for factor in undecided}
        setup.set_views(options, dict.fromkeys(options, "as on rank 0"))
        return 0.0
    start, trial = time.perf_counter(), ViewTrial(setup)
    options, reasons = {}, {}
    if trial.kinds is not None:
        print_line(console, f"trying views ({', '.join(factor.name for factor in undecided)}) for some seconds …")
    for factor in undecided:
        options[factor.name], reasons[factor.name] = trial.choice(factor)
        print_line(console, f"chosen: views.{factor.name} {options[factor.name]}: {reasons[factor.name]}")
    setup.set_views(options, reasons)
    return time.perf_counter() - start


def undecided_factors(config: TrainConfig) -> list[Factor]:
    return [factor for factor in FACTORS if getattr(config.views, factor.name) == "auto"]


class ViewTrial:
    """Short trainings on some of the samples, each with other views, compared by what neighbors have in common.

    Attributes:
        views: options of the trainings, for each factor the best so far.
        gray: whether there are no colors to decide.
        steps: of each training; 0: as many as the first factor that is tried can have.
        left: steps of trainings that the run's length still allows.
    """

    def __init__(self, setup: TrainingSetup) -> None:
        spread = torch.Generator().manual_seed(setup.config.seed)
        rows = torch.randperm(len(setup.train), generator=spread)[:SAMPLES].sort().values
        self.setup, self.data = setup, setup.train.subset(rows)
        self.kinds = same_kind(self.data)
        self.views: dict[str, str | None] = {name: getattr(setup.config.views, name) for name in VIEW_FACTORS}
        self.views |= {factor.name: next(iter(factor.options)) for factor in undecided_factors(setup.config)}
        timed = setup.config.time if setup.config.steps is None else None
        self.seconds = None if timed is None else seconds_in(timed)
        self.left = setup.total_steps // 5 if self.seconds is None else int(self.seconds / 8 * _STEPS_PER_SECOND)
        undecided = undecided_factors(setup.config)
        self.gray = any(factor.name == "color" for factor in undecided) and is_gray(self.data)
        tried = [factor for factor in undecided if not (factor.name == "color" and self.gray)]
        each = self.left // (1 + sum(len(factor.options) - 1 for factor in tried))
        self.steps = min(STEPS, each) if each >= ENOUGH_STEPS else 0
        self._begun = time.perf_counter()
        self._shares: dict[tuple[str | None, ...], Tensor] = {}  # of each training that was made

    def choice(self, factor: Factor) -> tuple[str, str]:
        """An option of a factor, and why; those of the factors before it are in force."""
        advice = f"--views.{factor.name} {' or '.join(factor.options)} if you know"
        if factor.name == "color" and self.gray:
            return self._untried(factor, "the pictures are gray")
        if self.kinds is None and factor.name == "color" and self._affords_color_test():
            return self._by_color_test(factor)
        if self.kinds is None and factor.name == "orientation" and self._affords_mirror_test():
            return self._by_mirror_test(factor)
        if self.kinds is None:
            return self._untried(factor, f"no labels, folders or file names tell what matters; {advice}")
        kinds, what = self.kinds
        arms = {option: self.views | {factor.name: option} for option in factor.options}
        if not self._affords(arms.values()):
            return self._untried(factor, f"the run is too short to try what fits; {advice}")
        shares = {option: self._share(views, kinds) for option, views in arms.items()}
        option = decide(shares, factor.usual, factor.margin)
        best = max(shares, key=lambda each: float(shares[each].mean()))
        self.views[factor.name] = option if option in shares else best
        found = ", ".join(f"{shares[each].mean():.0%} {words}" for each, words in factor.options.items())
        unclear = "" if option == best else "; no clear difference"
        return option, f"neighbors that share a {what} after {self.steps} steps: {found}{unclear}"

    def _untried(self, factor: Factor, why: str) -> tuple[str, str]:
        return self._use(factor, factor.untried, why)

    def _use(self, factor: Factor, option: str, why: str) -> tuple[str, str]:
        self.views[factor.name] = option
        return option, why

    def _affords_color_test(self) -> bool:
        """Whether there are enough samples, and the run is long enough for one training and a mirror test."""
        return len(self.data) >= color_test.LEAST_PICTURES and self.left >= STEPS

    def _by_color_test(self, factor: Factor) -> tuple[str, str]:
        self.steps = STEPS  # of those that the limits were measured with
        pictures = self.data.fetch(torch.arange(len(self.data)))
        features = self._features(self.views | {"color": "vary"})
        found = color_test.color_agreement(pictures, features, self.setup.config.seed)
        option = "keep" if found >= color_test.CONTENT else "vary" if found <= color_test.CHANCE else factor.usual
        tells = {"keep": "colors go with the rest", "vary": "colors are chance"}.get(option, "not clear")
        found_so = f"clusters of color agree by {found:.2f} with those of a network that was to ignore color: {tells}"
        return self._use(factor, option, f"{found_so}; no labels, folders or file names say more")

    def _affords_mirror_test(self) -> bool:
        """Whether there are enough samples, and the run is long enough; its steps cost about half of a training's."""
        late = self.seconds is not None and time.perf_counter() - self._begun > self.seconds / 6
        return len(self.data) >= 4 * mirror_test.LEAST_HELD_OUT and self.left >= mirror_test.STEPS // 2 and not late

    def _by_mirror_test(self, factor: Factor) -> tuple[str, str]:
        pictures = self.data.fetch(torch.arange(len(self.data)))
        told = mirror_test.tell_mirrored(pictures, self.setup.config.seed)
        option = "keep" if mirror_test.is_clear(told) else "flip"
        clear = "" if option == "keep" else "not clearly "
        share = f"{told.float().mean():.0%} of {len(told)} pictures are {clear}told from their mirror images"
        return self._use(factor, option, f"{share}; no labels, folders or file names say more")

    def _affords(self, arms: Iterable[Mapping[str, str | None]]) -> bool:
        """Whether the run is long enough to train those of the arms that were not trained yet; counts their steps."""
        new = sum(tuple(views.values()) not in self._shares for views in arms)
        self.steps = self.steps or min(STEPS, self.left // new)
        used = time.perf_counter() - self._begun
        late = self.seconds is not None and new * used / max(1, len(self._shares)) > self.seconds / 6 - used
        if self.steps < LEAST_STEPS or self.steps * new > self.left or (self._shares and late):
            return False
        self.left -= self.steps * new
        return True

    def _share(self, views: Mapping[str, str | None], kinds: Tensor) -> Tensor:
        key = tuple(views.values())
        if key not in self._shares:
            self._shares[key] = neighbors_of_kind(self._features(views), kinds)
        return self._shares[key]

    def _features(self, views: Mapping[str, str | None]) -> Tensor:
        """(N, F): of a small encoder trained with these views."""
        config = trial_config(self.setup.config, views, len(self.data))
        modality = make_modality(config)
        trial = Trial(config, modality, self.data, self.setup.device, None)
        for _ in trial.steps(Loader(len(self.data), config.batch_size, config.seed), self.steps):
            pass
        return embed(trial.method.encoder, self.data, prepare=modality.prepare, device=self.setup.device)


def is_gray(data: Dataset) -> bool:
    """Whether there are hardly any colors in some of the pictures."""
    x = data.fetch(torch.arange(0, len(data), -(-len(data) // GRAY_SAMPLES))).float()  # (B, 3, H, W)
    return float((x.amax(1) - x.amin(1)).mean()) < GRAY


def same_kind(data: Dataset) -> tuple[Tensor, str] | None:
    """(N,) numbers that are equal for samples of one label, folder or word, and which of the three; -1: unknown.

    None where they say nothing: all samples are alike, or hardly any two.
    """
    for found, what in (
        (data.labels, "label"),
        (folders(data.names), "folder"),
        (words(data.names), "word in their file names"),
    ):
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


def words(names: Sequence[str]) -> Tensor:
    """(N,) the number of the word that each file's name has before its number; -1: it has none.

    >>> words(["cat_1.png", "red apple (2).png", "cat.3.png", "IMG_4.jpg", "a26f1.png", "20.png"]).tolist()
    [0, 1, 0, -1, -1, -1]
    """
    numbers: dict[str, int] = {}
    found = (WORD_AND_NUMBER.fullmatch(PurePosixPath(name).stem) for name in names)
    each = ("" if match is None else match[1].lower() for match in found)
    return torch.tensor([numbers.setdefault(w, len(numbers)) if w and w not in OF_NO_KIND else -1 for w in each])


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


def decide(shares: Mapping[str, Tensor], usual: str, margin: float = 0.0) -> str:
    """The option with most neighbors of the same kind, if that is clear sample by sample; else the usual one.

    It is compared with the usual option, or with the second best if the usual one was not tried; `margin` is the part
    of its neighbors that the best must add to count.

    >>> kept, varied = torch.tensor([1.0, 0.8, 1.0, 0.9]), torch.tensor([0.2, 0.1, 0.3, 0.0])
    >>> decide({"keep": kept, "vary": varied}, usual="mild"), decide({"flip": kept, "keep": kept}, usual="flip")
    ('keep', 'flip')
    """
    best, second = sorted(shares, key=lambda option: float(shares[option].mean()), reverse=True)[:2]
    gain = shares[best] - shares[usual if usual in shares else second]
    clear = gain.mean() > CLEAR * gain.std() / math.sqrt(len(gain))
    return best if clear and gain.mean() > margin * (shares[best] - gain).mean() else usual


def trial_config(config: TrainConfig, views: Mapping[str, Any], samples: int) -> TrainConfig:
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
        views=ViewsConfig(preset="photos", count=2, **views),
    )
