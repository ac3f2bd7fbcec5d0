"""What a method is: work on each sample, work across samples, and what happens after the optimizer's step."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nearfar.methods.advice import RunFacts, Verdict
from nearfar.nn.host_numbers import HostNumbers

Encoded = dict[str, Tensor]  # each (B, ...): rows of samples, so that it can be chunked and gathered
Toy = tuple["Method", list["Batch"]]
_FROM_RUN = ("self", "encoder", "features", "samples")  # what the trainer passes itself


@dataclass(frozen=True)
class Batch:
    """One training batch, as the views left it."""

    views: Sequence[Tensor]  # each (B, ...), already on the device; the local ones, if any, are the last
    index: Tensor  # (B,) the samples' numbers in the data set
    ids: Tensor  # (B,) samples with equal ids are never negatives of each other; the index, where nothing else is known
    labels: Tensor | None = None  # (B,) only for methods with `needs_labels`; scores, with `needs_scores`
    local: int = 0  # views of small parts, as DINO's local crops: so many of the last
    negatives: int | None = None  # texts that contradict, of the last views; None: the third of three texts
    guide: Tensor | None = None  # (B, V, G) embeddings of the V views by `Method.guide`, or of one that stands for all
    whole: Tensor | None = None  # (B, ...) the samples as they are, prepared; only where `AnchoredMethod` needs them
    host_index: Tensor | None = None  # (B,) the index on the CPU, for random numbers drawn there by sample

    @property
    def samples(self) -> list[int]:
        """The samples' numbers; without `host_index` this waits for the device."""
        numbers: list[int] = (self.index if self.host_index is None else self.host_index).tolist()
        return numbers

    @property
    def full_views(self) -> Sequence[Tensor]:
        """All but the local ones."""
        return self.views[: len(self.views) - self.local]

    @property
    def local_views(self) -> Sequence[Tensor]:
        return self.views[len(self.views) - self.local :]


@dataclass(frozen=True)
class Horizon:
    """The contrastive task of one of several horizons, for the health report; nothing has a gradient but the loss."""

    ahead: int  # frames
    loss: Tensor  # () InfoNCE in nats
    query: Tensor  # (R, D) predictions
    key: Tensor  # (R, D) what came; the score is the inner product
    ids: Tensor  # (R,) rows with equal ids are no negatives of each other
    among: Tensor  # (R,) candidates are rows with the same number
    drawn: int = 0  # negatives that were drawn from these candidates for each row; 0: all of them


@dataclass(frozen=True)
class Step:
    """The loss of one batch, and what the health report looks at."""

    loss: Tensor
    z1: Tensor  # (B, D) two views as the loss compared them
    z2: Tensor  # (B, D)
    candidates: int = 0  # the N of log N: positive and negatives of a query; 0 where there are no negatives
    fair: Tensor | None = None  # () whether all others were negatives, none left out by ids; else log N - L is no bound
    log: dict[str, Tensor] = field(default_factory=dict)  # further scalars
    horizons: Sequence[Horizon] = ()  # of methods that predict several steps ahead; the loss is then their mean


def all_differ(ids: Tensor) -> Tensor:
    """() whether no two are equal, so that ids leave nobody out but a sample itself.

    >>> bool(all_differ(torch.tensor([3, 1, 2]))), bool(all_differ(torch.tensor([3, 1, 3])))
    (True, False)
    """
    ordered = ids.sort().values
    return (ordered[1:] != ordered[:-1]).all()


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float, **settings: Any) -> list[dict[str, Any]]:
    """Two groups for an optimizer: matrices and kernels, which decay, and norms, biases and scalars, which do not.

    Args:
        settings: of both groups, such as constant_lr=True.
    """
    trainable = [p for p in parameters if p.requires_grad]
    return [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": weight_decay, "adapt": True, **settings},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0, "adapt": False, **settings},
    ]


class Method(HostNumbers):
    """A method is `encode`, `contrast` and `after_step`. State that must survive a checkpoint is in buffers.

    It is made as `Name(encoder, features=encoder.num_features, samples=..., **options)`. The options are the keyword
    parameters of the constructor, with the paper's values as defaults. A method that draws random numbers has the
    parameter `seed: int = 0`, which a run sets to its own seed, and draws from (seed, step).

    Everything else that the package must know of a method is declared here, on its class.
    """

    name: ClassVar[str] = ""  # as --method has it; a method from outside is called MODULE:NAME
    when: ClassVar[str] = ""  # to choose it, in a few words that follow "choose it when", for `nearfar methods`
    reference: ClassVar[tuple[str, str]] = ("", "")  # its paper: authors and year, and where it is found
    also_needs: ClassVar[str] = ""  # beside what the declarations below say, for `nearfar methods`
    modalities: ClassVar[Sequence[str]] = ("image", "sound", "series", "text")  # the first is what a run assumes
    default_views: ClassVar[Mapping[str, str]] = {  # preset by modality; a method names those that differ from these
        "image": "simclr",
        "image-text": "clip",
        "series": "series",
        "sound": "simclr",
        "sound-text": "cola",
    }
    min_views: ClassVar[int] = 2
    max_views: ClassVar[int | None] = 2  # None: any number
    max_local: ClassVar[int | None] = 0  # how many local views it can use beside these; None: any number
    usual_views: ClassVar[int | None] = None  # without --views.count; None: as many as the preset makes
    needs_labels: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False  # of pairs: how similar the two are
    uses_captions: ClassVar[bool] = False
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # by modality: settings of a run, such as the backbone
    short_run: ClassVar[Mapping[str, Any]] = {}  # settings of runs of minutes on little data
    short_runs: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # by modality, where one has its own
    from_weights: ClassVar[Mapping[str, Any]] = {}  # settings of runs that start from weights
    toy_options: ClassVar[Mapping[str, Any]] = {}  # of `toy`: small widths
    # What `--recipe paper` sets: "options", "optimizer" and other settings of a run as the paper or its authors' code
    # has them. Epochs and batch size are the user's: the papers' are ImageNet's.
    paper: ClassVar[Mapping[str, Any]] = {}
    paper_views: ClassVar[Mapping[str, str]] = {}  # by modality, where the paper's are not `default_views`

    encoder: nn.Module  # what the user keeps: x (B, ...) to h (B, F)
    idle = False  # whether some trained parameters take no part in some steps
    ring = False  # whether the loss is a mean over rows, each against the batch's own by ids: then keys may travel
    loss_weight = 1.0  # what the trainer multiplies the loss by; `Step.loss` itself stays in the loss's own units
    guide: str | None = None  # weights of a frozen encoder, whose embeddings a run puts into its batches
    group = 0  # samples that BatchNorm sees together; 0: all that are encoded at a time

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The method's hyperparameters with their defaults: keyword parameters of its constructor.

        A constructor that takes `**options` hands them to its parent, and so has the parent's, too.
        """
        found: dict[str, Any] = {}
        for kind in cls.__mro__[: cls.__mro__.index(Method)]:
            if "__init__" not in vars(kind):
                continue
            parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
            for p in parameters:
                if p.kind is not p.VAR_KEYWORD and p.name not in _FROM_RUN:
                    found.setdefault(p.name, p.default)
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
        return found

    @classmethod
    def short_run_of(cls, modality: str) -> Mapping[str, Any]:
        """Settings of runs of minutes on little data of that kind."""
        return cls.short_runs.get(modality, cls.short_run)

    @classmethod
    def views_of(cls, modality: str) -> str:
        """The preset of views that the method is trained on."""
        return cls.default_views.get(modality, Method.default_views.get(modality, ""))

    @classmethod
    def paper_settings(cls, modality: str, backbone: str, *, pretrained: bool = False) -> dict[str, Any]:
        """Settings of a run by the recipe "paper". A method whose authors tell backbones apart overrides this.

        Args:
            pretrained: whether the run starts from given weights.
        """
        return {**cls.paper, "views": cls.paper_views.get(modality) or cls.views_of(modality) or None}

    @classmethod
    def trained_encoder(cls, encoder: nn.Module, features: int, **options: Any) -> nn.Module:
        """The network that a run keeps, from its backbone: with layers of the head, if the method leaves these on it.

        A method that overrides this calls it in its constructor; `nearfar.load` builds the network of a run by it.

        Args:
            encoder: x (B, ...) to h (B, features).
            options: of the method; those that are left out have their defaults.
        """
        return encoder

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        """A tiny instance and two batches for it in float64, for the certificate; here of images in two views.

        Args:
            options: beside `toy_options`.
        """
        from nearfar.methods.toy import toy_method

        return toy_method(cls, rows, **{**cls.toy_options, **options})

    @classmethod
    def more_toys(cls) -> dict[str, Toy]:
        """Further instances for the certificate, by what is particular to them: options that change the computation."""
        return {}

    def encode(self, batch: Batch) -> Encoded:
        """Per-sample work, which may be run in chunks: everything of a sample that `contrast` needs, by name."""
        raise NotImplementedError(f"{type(self).__name__} has no encode")

    def contrast(self, encoded: Encoded) -> Step:
        """Cross-sample work: sees every row, of every process."""
        raise NotImplementedError(f"{type(self).__name__} has no contrast")

    def after_step(self, progress: float) -> None:
        """Momentum networks, queues and banks move here. The trainer calls it after every optimizer step.

        Args:
            progress: the part of the run that is done, from 0 to 1.
        """

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """For the optimizer: matrices and kernels decay; norms, biases and scalars do not, nor does LARS scale them.

        A group may also have `lr_scale`, a factor of its learning rate, and `constant_lr`: no schedule.
        """
        return decay_groups(self.parameters(), weight_decay)

    def advice(self, facts: RunFacts) -> list[Verdict]:
        """Which of the method's options do not fit the run, and what to set instead."""
        return []

    def forward(self, batch: Batch) -> Step:
        return self.contrast(self.encode(batch))

    @torch.no_grad()
    def embed(self, x: Tensor) -> Tensor:
        """(B, F), what the encoder makes of x."""
        h: Tensor = self.encoder(x)
        return h

    @torch.no_grad()
    def embed_pair(self, views: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """(B, F) twice, of each sample two embeddings that should be alike: those of its first two views."""
        return self.embed(views[0]), self.embed(views[1])
