"""How the weights move. Needs no torch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from nearfar.settings import check_settings, setting


@dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer and learning rate schedule."""

    main_key: ClassVar[str] = "name"

    name: Literal["sgd", "adamw", "lars", "muon"] = setting("sgd", "the optimizer")
    lr: float | None = setting(None, "peak learning rate at batch 256; None: 0.06, 1e-3, 0.3 or 0.02 by name", above=0)
    scale_lr: Literal["linear", "sqrt", "none"] | None = setting(
        None, "multiply the learning rate by batch / 256, by its root, or not; None: not for muon, else linear"
    )
    weight_decay: float | None = setting(
        None, "weight decay of matrices and kernels; None: 5e-4, 0.05, 1e-6 or 0 by name", least=0
    )
    decay_all: bool = setting(False, "weight decay also on norms, biases and scalars")
    momentum: float | None = setting(None, "momentum of SGD, LARS and Muon; None: 0.9, for Muon 0.95", least=0, below=1)
    lr_in_momentum: bool = setting(
        True, "LARS: momentum sums learning rate times gradient (SimCLR); false: gradients only (BYOL)"
    )
    beta2: float = setting(0.999, "AdamW, also beside Muon: decay of the squared gradients", above=0, below=1)
    eps: float = setting(1e-8, "AdamW, also beside Muon: added to the root of the squared gradients", above=0)
    schedule: Literal["cosine", "linear", "step", "constant"] = setting("cosine", "learning rate after the warm-up")
    milestones: list[float] = setting(
        [0.6, 0.8], "schedule step: fractions of the run after which the rate is divided by 10", above=0, below=1
    )
    per_epoch: bool = setting(False, "the schedule moves once an epoch; false: at every step")
    warmup_ratio: float = setting(0.05, "fraction of the run in which the learning rate rises linearly", least=0)
    warmup_epochs: float | None = setting(None, "the same in epochs, in place of the fraction", least=0)
    warmup_from_zero: bool = setting(False, "the first step of the warm-up has a learning rate of 0")
    min_lr_ratio: float = setting(0.0, "final learning rate as a fraction of the peak", least=0)
    clip_norm: float | None = setting(None, "largest norm of the gradient; None: no clipping", above=0)

    def __post_init__(self) -> None:
        check_settings(self, "optimizer")
        if self.milestones != sorted(self.milestones):
            raise ValueError(f"optimizer.milestones is {self.milestones}, expected rising fractions of the run")


@dataclass(frozen=True)
class AdaptConfig:
    """How pretrained weights are adapted. Nothing here but `keep` has an effect on a run that draws its weights itself.

    The defaults change nothing; runs from weights get others from the automatic settings.
    """

    layer_decay: float = setting(
        1.0, "learning rate of each pretrained block as a fraction of that of the block above it", above=0, most=1
    )
    head_lr: float = setting(
        1.0, "learning rate of new layers, such as the projection head, relative to the pretrained ones", above=0
    )
    head_warmup: float = setting(
        0.0, "fraction of the run, at its beginning, in which only new layers are trained", least=0, below=1
    )
    batch_norm: Literal["update", "frozen"] = setting(
        "update", "BatchNorm of pretrained weights: statistics of the batch, or the pretrained ones throughout"
    )
    freeze_blocks: int = setting(0, "number of pretrained blocks, counted from the input, that stay frozen", least=0)
    anchor: float = setting(
        0.0, "weight of a second loss, by which views keep the neighbors that the start gives the whole sample", least=0
    )
    projections: Literal["random", "fitted"] = setting(
        "random", "projections of two towers with weights: drawn, or fitted to the training pairs before the first step"
    )
    keep: Literal["end", "best"] = setting(
        "end",
        "best: keep the start or a checkpoint if held-out samples without labels find it better; from random weights "
        "the start, if clearly more of its neighbors share a label, a folder or a word in their file names",
    )

    def __post_init__(self) -> None:
        check_settings(self, "adapt")
