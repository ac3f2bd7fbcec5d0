"""What is kept of a run: its end, the start, or of one that adapted pretrained weights an earlier checkpoint."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nearfar.model import checkpoint
from nearfar.training.adaptation import pretrained_parts
from nearfar.training.build_method import build_method
from nearfar.training.kind_comparison import KeptStart, keep_better_start
from nearfar.training.setup import TrainingSetup
from nearfar.training.start_comparison import LEAST_GAIN

BEST = "best.pt"
MEASURED = (
    *("start_score", "score", "gain", "gain_error"),
    *("start_own", "own", "own_gain", "own_error", "remembered"),
)


@dataclass(frozen=True)
class ModelSelection:
    """Which weights a run ends with, and why.

    Attributes:
        step: of the weights; 0: the start.
        total: steps of the run.
        best: the step that was best by the held-out samples.
        samples: that were compared.
        start_score, score: of the start and of the best step (`StartComparison`).
        gain, gain_error: the difference, and its standard error.
        start_own, own: part of the views that find their own sample.
        own_gain, own_error: the difference, and its standard error.
        remembered: part of the start's neighbors that are still neighbors.
    """

    step: int
    total: int
    best: int
    samples: int
    start_score: float
    score: float
    gain: float
    gain_error: float
    start_own: float = 0.0
    own: float = 0.0
    own_gain: float = 0.0
    own_error: float = 0.0
    remembered: float = 1.0

    def card(self) -> dict[str, Any]:
        """For the card."""
        kept = "start" if self.step == 0 else "end" if self.step == self.total else f"step {self.step}"
        return {"kept": kept, "line": self.line(), **asdict(self)}

    def line(self) -> str:
        """In words.

        >>> ModelSelection(0, 40, 10, 300, 0.43, 0.41, -0.02, 0.01).line()
        'the start is kept: on 300 held-out samples, without labels, training scores no better (0.410, start 0.430)'
        >>> ModelSelection(0, 40, 10, 300, 0.43, 0.436, 0.006, 0.01).line()[-47:]
        '(0.436, start 0.430: within the error of 0.010)'
        """
        what = "the start is kept"
        if self.step:
            what = "the end is kept" if self.step == self.total else f"step {self.step:,} of {self.total:,} is kept"
        told = f"{what}: on {self.samples:,} held-out samples, without labels, training scores"
        if self.step and self.gain <= max(self.gain_error, LEAST_GAIN):
            found = f"views find their own in {self.own:.1%}, {self.start_own:.1%} before"
            return f"{told} better ({found}; {self.remembered:.0%} of the start's neighbors are still neighbors)"
        close = f": within the error of {self.gain_error:.3f}" if not self.step and self.gain > 0 else ""
        scores = f"({self.score:.3f}, start {self.start_score:.3f}{close})"
        return f"{told} {'better' if self.step else 'no better'} {scores}"


def select_weights(setup: TrainingSetup, folder: Path) -> ModelSelection | KeptStart | None:
    """Give the method of a finished run the weights that are kept; rank 0 only.

    Of a run from given weights they follow from what was measured in training, of one from scratch from a comparison
    of its start and its end.

    Returns:
        What was kept; None: the end stays, and there is nothing to tell.
    """
    if setup.comparison is None:
        return None if pretrained_parts(setup.method.encoder) else keep_better_start(setup)
    if not (folder / "checkpoints" / BEST).exists():
        return None
    best = checkpoint.load(folder / "checkpoints" / BEST)
    if "found" not in best:
        return None
    measured = {name: best["found"][name] for name in MEASURED}
    step = best["step"] if best["score"] > 0 else 0
    if step == 0:
        start = build_method(setup.config, len(setup.train)).encoder
        setup.method.encoder.load_state_dict(start.state_dict())
    elif step < setup.total_steps:
        setup.method.load_state_dict(best["method"])
    return ModelSelection(step, setup.total_steps, best["step"], len(setup.comparison.rows), **measured)
