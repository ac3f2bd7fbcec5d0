"""The shape of the test embeddings: alignment, uniformity, rank, spectrum, hubness, purity. Needs no labels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.evaluation.embedding import embed
from nearfar.evaluation.geometry import (
    alignment,
    covariance_spectrum,
    effective_rank,
    lidar,
    neighborhood,
    participation_ratio,
    uniformity,
)
from nearfar.evaluation.metrics import Estimate, mean_estimate, proportion
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Task, arrays
from nearfar.metric_text import MetricStyle
from nearfar.nn.seeding import seeded_generator
from nearfar.settings import setting


@dataclass(frozen=True)
class GeometrySettings:
    """Protocol geometry: the shape of the embeddings."""

    views: int = setting(8, "augmented views of a sample, for alignment and LiDAR", least=2)
    samples: int = setting(500, "samples that are augmented, at most", least=2)


def geometry(task: Task, settings: GeometrySettings, seed: int) -> Outcome:
    """Alignment and LiDAR are measured on augmented views of some of the test samples, the rest on all of them."""
    h = task.raw_test_features
    n = len(h)
    augmented = torch.arange(n)[:: max(1, n // settings.samples)][: settings.samples]
    views = torch.stack([_view(task, augmented, seed, index) for index in range(settings.views)], 1)  # (n, q, F)
    spectrum = covariance_spectrum(h)
    near = neighborhood(h, task.test.labels if task.labelled else None)
    values = {
        "alignment": (float(alignment(views[:, 0], views[:, 1])), len(augmented)),
        "uniformity": (float(uniformity(h)), n),
        "RankMe": (float(effective_rank(h)), n),
        "LiDAR": (lidar(views), len(augmented)),
        "participation ratio": (participation_ratio(spectrum), n),
        "hubness": (near.hubness, n),
    }
    metrics = {name: Estimate(value, None, None, count) for name, (value, count) in values.items()}
    metrics["orphans"] = proportion(near.occurrence == 0)
    if near.purity is not None:
        metrics["neighbourhood purity"] = mean_estimate(near.purity, count=task.bootstrap, seed=seed)
    notes = []
    if len(augmented) < h.shape[1] or n < h.shape[1]:
        notes.append(
            f"{task.name}: {h.shape[1]} features from {n} images, {len(augmented)} of them in several views: ranks "
            "cannot exceed these numbers"
        )
    return Outcome(metrics, arrays(spectrum=spectrum, occurrence=near.occurrence), notes)


def _view(task: Task, places: Tensor, seed: int, index: int) -> Tensor:
    """(K, F) features of one random view of each of these test samples."""
    generator = seeded_generator(seed, 0, index)
    return embed(
        task.encoder,
        task.test.data,
        prepare=lambda samples: task.embedder.prepare(task.varied(samples, generator, strong=True)),
        batch_size=task.compute.batch_size,
        device=task.compute.device,
        rows=task.test.rows[places],
    )


PROTOCOL = Protocol(
    "geometry",
    geometry,
    "alignment, uniformity, RankMe, LiDAR, spectrum, hubness, purity",
    "RankMe",
    GeometrySettings,
    needs="samples",
    title="The geometry",
    metrics=dict.fromkeys(
        ("alignment", "uniformity", "RankMe", "LiDAR", "participation ratio", "hubness"), MetricStyle(2)
    ),
    verdict="never",
)
