"""Normalization, backbone, batch, optimizer and length of a run on series, from measured rules (docs/automatic.md)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nearfar.data.config import DataConfig
from nearfar.losses.arguments import l2_normalize
from nearfar.modalities.automatic import Automatic, Request, fitting_batch, keep_better_start
from nearfar.modalities.series.data import has_series_splits, open_series
from nearfar.modalities.series.views import normalized
from nearfar.nn.kernel_encoder import KernelEncoder
from nearfar.nn.whitening import fit_transform
from nearfar.settings import build

COMPARED = 1_000  # series at most, whose neighbors are looked at
BACKBONES = {None: "kernels", "cpc-series": "cpc-kernels"}  # in place of what a method declares for series
LEAST_STEPS, MOST_STEPS = 300, 3_000  # 300 take seconds; see docs/automatic.md for more of them
EPOCHS = 4  # of sets so large that they are more than 300 steps
HIDDEN = 128  # features inside the head


@dataclass(frozen=True)
class SeriesFacts:
    """What is known of series before a run.

    Attributes:
        length: steps of the longest.
        normalized: every channel of every series has mean 0 and deviation 1 as it is.
        own, shared: the part of series whose nearest neighbor has their label, normalized each by itself or all alike;
            None without labels.
    """

    count: int
    length: int
    channels: int
    normalized: bool
    own: float | None = None
    shared: float | None = None


def look_at(request: Request) -> SeriesFacts | None:
    """Count and compare; None if the series cannot be read, which opening them will explain."""
    try:
        read: DataConfig = build(DataConfig, request.given.get("data", {}), "data")
        data = open_series(request.data, read, split="train" if has_series_splits(request.data) else None)
        done = bool((normalized(data.values) - data.values).abs().nan_to_num(0.0).mean() < 0.01)
        facts = SeriesFacts(len(data), data.size, data.channels, done)
        if done or data.labels is None or "normalize" in request.given.get("series", {}):
            return facts
        rows = (data.labels >= 0).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:COMPARED]]
        return _compared(facts, data.values[rows], data.labels[rows])
    except Exception:  # the run will open the data again, and say what is wrong with them
        return None


def choose(request: Request, facts: SeriesFacts) -> Automatic:
    """The settings of a run on these series."""
    chosen = Automatic()
    keep_better_start(chosen)
    _choose_normalization(chosen, facts)
    backbone = request.method.settings.get("series", {}).get("backbone")
    if backbone in BACKBONES:
        chosen.choose("backbone", BACKBONES[backbone], "short patterns and when they occur: good from the start")
    if "lr" not in request.given.get("optimizer", {}):  # a rate is of the optimizer that its user knows
        chosen.choose("optimizer.name", "muon", "learns more per step than AdamW in short runs")
        chosen.choose("optimizer.lr", 0.005)
    chosen.lay(request.method.short_run_of("series"))
    if request.method.options().get("hidden", 0) is None:  # as wide as the features
        chosen.choose("options.hidden", HIDDEN, "a head as small as the encoder makes more steps")
    views = chosen.settings.get("views", {}).get("count", 2)
    batch = fitting_batch(64 // views, facts.count)
    chosen.choose("batch_size", batch, "small batches make more steps in the same time")
    if not request.has_length:
        steps = min(MOST_STEPS, max(LEAST_STEPS, EPOCHS * facts.count // batch))
        chosen.choose("steps", steps, f"enough for {facts.count:,} series; --time, --steps or --epochs change it")
    return chosen


def _choose_normalization(chosen: Automatic, facts: SeriesFacts) -> None:
    """By each series' own mean and deviation unless the level or height of a series tells its label."""
    if facts.normalized:
        chosen.choose("series.normalize", "data", "every series has mean 0 and deviation 1 already")
    elif facts.own is None or facts.shared is None:
        chosen.choose("series.normalize", "series", "without labels nothing tells whether height and level matter")
    else:
        found = f"{facts.own:.0%} of neighbors share a label with series normalized each by itself, {facts.shared:.0%}"
        better = "data" if facts.shared > facts.own else "series"
        chosen.choose("series.normalize", better, f"{found} with all normalized alike")


def _compared(facts: SeriesFacts, values: Tensor, labels: Tensor) -> SeriesFacts:
    """How many neighbors share a label with either normalization, by an untrained encoder."""
    wide = values.double()
    alike = wide - wide.nanmean((0, 2), keepdim=True)
    alike = alike / alike.square().nanmean((0, 2), keepdim=True).sqrt().clamp_min(1e-12)
    own, shared = (_neighbors_with_label(x, labels) for x in (normalized(values), alike.float()))
    return replace(facts, own=own, shared=shared)


@torch.no_grad()
def _neighbors_with_label(x: Tensor, labels: Tensor) -> float:
    """The part of series (N, C, T) whose nearest other one has their label (N,)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = KernelEncoder(x.shape[1], steps=x.shape[2])
    encoder.norm.momentum = None  # the mean over the batches
    for part in x.split(256):
        encoder(part)
    encoder.eval()
    h = torch.cat([encoder(part) for part in x.split(256)])
    whitened = fit_transform(h, "whitened")
    assert whitened is not None
    similarity = (z := l2_normalize(whitened(h))) @ z.T
    return float((labels[similarity.fill_diagonal_(-2.0).argmax(1)] == labels).float().mean())
