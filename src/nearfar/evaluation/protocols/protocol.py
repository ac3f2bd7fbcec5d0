"""What a protocol declares: its function, its settings, and what it needs of the data and of the encoder."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from torch import Tensor

from nearfar.evaluation.task import Outcome, Task
from nearfar.metric_text import SHARE, MetricStyle
from nearfar.settings import check_settings, setting


@dataclass(frozen=True)
class NoSettings:
    """Of a protocol that has none."""


@dataclass(frozen=True)
class SharedSettings:
    """Settings of several protocols."""

    validation_fraction: float = setting(
        0.1, "fraction of the training rows on which regularization and number of epochs are chosen", above=0, below=1
    )
    bootstrap: int = setting(200, "bootstrap resamples behind the confidence intervals", least=20)

    def __post_init__(self) -> None:
        check_settings(self, "protocols")

    def of(self, protocol: "Protocol") -> Any:
        """The protocol's own settings."""
        return vars(self).get(protocol.name) or protocol.settings()


@dataclass(frozen=True)
class Protocol:
    """A way to measure an encoder.

    Attributes:
        name: on the command line and in result rows.
        run: a task, the protocol's settings and a seed to what was found; ValueError where the data do not allow it.
        about: one line, for help.
        title: as the subject of a sentence, for the report; None: the name.
        headline: pattern of the metrics to read first.
        metrics: style of the metrics that are no shares of which more is better, by the words before a comma.
        verdict: whether its headline metrics decide if an encoder is better: "first"; if no such protocol was measured,
            "second"; or "never", if they describe and judge nothing.
        settings: a frozen dataclass whose fields are made by `setting`; each has a default. `ProtocolConfig` checks it.
        shared: fields of `SharedSettings` that the result depends on.
        needs: of the data. "words" are labelled sounds; "samples" are any.
        reads_texts: needs an encoder with a text input.
        has_frames: needs an encoder that gives frames in time.
        raw_only: looks at the prepared samples, so it runs on the raw baseline only.
        rival_of: another protocol whose headline metric its own is comparable with: both are compared sample by sample.
        fit_settings: settings completed from the (M,) training labels, before anything is measured.
        seeded: the result depends on the seed, so several are worth their time.
        shows_progress: has a progress bar of its own.
    """

    name: str
    run: Callable[[Task, Any, int], Outcome]
    about: str
    headline: str
    settings: type[Any] = NoSettings
    title: str | None = None
    shared: tuple[str, ...] = ("bootstrap",)
    needs: Literal["labels", "boxes", "captions", "scored pairs", "words", "samples"] = "labels"
    reads_texts: bool = False
    has_frames: bool = False
    raw_only: bool = False
    rival_of: str | None = None
    fit_settings: Callable[[Any, Tensor], Any] | None = None
    seeded: bool = False
    shows_progress: bool = False
    metrics: Mapping[str, MetricStyle] = field(default_factory=dict)
    verdict: Literal["first", "second", "never"] = "second"

    def style(self, metric: str) -> MetricStyle:
        """How a metric is written and compared."""
        return self.metrics.get(metric.partition(",")[0], SHARE)

    @property
    def labelled(self) -> bool:
        """Whether the data need labels."""
        return self.needs in ("labels", "words")

    @property
    def general(self) -> bool:
        """Whether any encoder of images can be measured by it, so that it is one of "all"."""
        special = self.reads_texts or self.has_frames or self.raw_only
        return not special and self.needs in ("labels", "boxes", "samples")

    def settings_for(self, config: SharedSettings, labels: Tensor) -> Any:
        """The settings, completed from the (M,) training labels."""
        own = config.of(self)
        return own if self.fit_settings is None else self.fit_settings(own, labels)

    def used_settings(self, config: SharedSettings, own: Any = None) -> dict[str, Any]:
        """All that the result depends on, for the record; `own`: its settings, if they were completed."""
        shared: dict[str, Any] = {name: vars(config)[name] for name in self.shared}
        return asdict(config.of(self) if own is None else own) | shared
