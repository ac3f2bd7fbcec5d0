"""Everything a run needs before its first step: device, data splits, batches and the method."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import torch
from rich.console import Console

from nearfar.config import TrainConfig, completed
from nearfar.data.dataset import counted
from nearfar.data.fingerprint import fingerprint
from nearfar.data.loader import Loader
from nearfar.devices import find_device
from nearfar.distributed.processes import check_ring
from nearfar.methods import find_method
from nearfar.modalities import MODALITIES, make_modality
from nearfar.progress import print_line
from nearfar.training.adaptation import pretrained_parts
from nearfar.training.advice import labels_hint
from nearfar.training.attachments import Attachments
from nearfar.training.build_method import build_method
from nearfar.training.check_data import check_data
from nearfar.training.check_settings import check_supported
from nearfar.training.guide import open_guide
from nearfar.training.processes import with_launched_processes
from nearfar.training.start_comparison import StartComparison

LEAST_COMPARED = 50  # held-out samples; of fewer, training samples tell more


class TrainingSetup:
    """The data, loader, method and device of a configuration, opened and checked.

    Args:
        config: of the run. `self.config` has what the data decided, such as a smaller batch size.
        console: where notes on the data are printed.
        attachments: callbacks and loggers of the caller.
    """

    def __init__(self, config: TrainConfig, console: Console, attachments: Attachments | None = None) -> None:
        self.attachments = attachments or Attachments()
        check_data(config)
        for note in config.notes:
            print_line(console, f"chosen: {note}")
        self.config = config = with_launched_processes(config)
        self.device = find_device(config.device)
        check_supported(config, self.device)
        self.modality = make_modality(config)
        build_method(config, samples=1000)  # errors in the method's options come before the data are read
        self.splits = splits = self.modality.split()
        for note in splits.notes:
            print_line(console, note)
        self.train, self.validation, self.test = splits.train, splits.validation, splits.test
        assert splits.everything is not None
        fitted = _fit_batch_size(self.modality.fit(splits.everything), len(self.train), console)
        self.config = self.modality.config = config = fitted
        self._check_samples()
        self._check_view_count()
        self.loader = Loader(
            len(self.train), config.batch_size, config.seed, parts=self.train.shards, window=config.data.shuffle_window
        )
        self.steps_per_epoch = max(1, len(self.loader) // config.accumulate_batches)
        if config.steps is None and config.epochs * len(self.loader) < config.accumulate_batches:
            raise ValueError(
                f"{config.epochs} epochs of {len(self.loader)} batches make no optimizer step of "
                f"{config.accumulate_batches} batches; lower --accumulate-batches"
            )
        self.method = build_method(config, len(self.train))
        for module in self.method.encoder.modules():
            if isinstance(found := getattr(module, "loaded", None), str):
                print_line(console, f"starts from {found}")
        if config.gather == "ring":
            check_ring(self.method)
            if config.adapt.anchor and pretrained_parts(self.method.encoder):
                raise ValueError("gather is 'ring', and an anchor compares all rows; set --gather gather")
        self.guide = open_guide(self.method, self.modality, config.seed, self.device)
        self.fingerprint = fingerprint(self.train)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        by_epochs = self.config.epochs * len(self.loader) // self.config.accumulate_batches
        return by_epochs if self.config.steps is None else self.config.steps

    @cached_property
    def comparison(self) -> StartComparison | None:
        """Whether the encoder is better than the weights that it was given; None if that is not asked."""
        config, few = self.config, self.validation is None or len(self.validation) < LEAST_COMPARED
        if config.adapt.keep == "end" or not pretrained_parts(self.method.encoder):
            return None
        samples = self.train if few or self.validation is None else self.validation

        def start() -> torch.nn.Module:
            return build_method(config, len(self.train)).encoder.to(self.device)

        return StartComparison(start, self.modality, samples)

    def set_steps(self, steps: int) -> None:
        """Fix the number of optimizer steps."""
        self.config = self.modality.config = replace(self.config, steps=steps)

    def set_views(self, options: Mapping[str, str], reasons: Mapping[str, str]) -> None:
        """Fix what views do to colors, orientation and scale, with a line for each that says why."""
        config = self.config
        notes = [*config.notes, *(f"views.{name} {option}: {reasons[name]}" for name, option in options.items())]
        self.config = replace(config, views=replace(config.views, **options), notes=notes)  # type: ignore[arg-type]
        self.modality = make_modality(self.config)

    def _check_samples(self) -> None:
        if len(self.train) < 2:
            raise ValueError(
                f"{self.config.data.path} has {counted(len(self.train), 'sample')} to learn from, expected at least 2 "
                "(some hundreds to learn anything); give more data"
            )
        method = find_method(self.config.method)
        if method.needs_scores and self.train.scores is None:
            raise ValueError(
                f"{self.config.method} learns from the scores of pairs, and {self.config.data.path} has none; expected "
                "a column 'score' beside the two texts, or another --method, such as pairs"
            )
        if method.needs_labels and self.train.labels is None:
            hint = labels_hint(self.config) or "give labelled data, or another --method, such as simclr"
            raise ValueError(f"{self.config.method} learns from labels, and {self.config.data.path} has none; {hint}")

    def _check_view_count(self) -> None:
        """A modality from outside makes as many views as its author wrote; `--views.count` must not promise others."""
        count, index = self.config.views.count, torch.arange(2)
        if count is None or self.config.kind in MODALITIES:
            return
        made = self.modality.views(self.train.fetch(index), self.train, index, seed=self.config.seed, step=0)
        if (full := len(made) - self.modality.local_views) != count:
            what = f"the modality {self.modality.name!r} makes {counted(full, 'view')}"
            raise ValueError(f"--views.count is {count}, but {what} of each sample; omit it")

    @property
    def method_labels(self) -> torch.Tensor | None:
        """(N,) labels of the training samples, or scores, for methods that learn from them; None otherwise."""
        if self.method.needs_scores:
            return self.train.scores
        return self.train.labels if self.method.needs_labels else None


def _fit_batch_size(config: TrainConfig, samples: int, console: Console) -> TrainConfig:
    """Reduce the default batch size if the data do not fill it; a batch size that the user set is kept."""
    given = {"data": config.data.path, "method": config.method, "modality": config.modality}
    default = completed(given).get("batch_size", TrainConfig.batch_size)
    reduced = 1 << (samples // 2).bit_length() >> 1  # a power of two, at least two batches
    usual = config.batch_size in (default, TrainConfig.batch_size)
    if not usual or samples >= config.batch_size or reduced < max(8, 2 * config.processes * config.nodes):
        return config
    print_line(
        console,
        f"Batch size reduced from {config.batch_size} to {reduced}: only {samples:,} samples "
        "(override with --batch-size)",
    )
    return replace(config, batch_size=reduced)
