"""A linear readout of frames: is the label of a sample there at every moment of it?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.evaluation.classification import STYLES
from nearfar.evaluation.linear import linear_probe
from nearfar.evaluation.metrics import mean_estimate, proportion
from nearfar.evaluation.paired import SampleValues
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Part, Task
from nearfar.settings import setting


@dataclass(frozen=True)
class FramesSettings:
    """Protocol frames: a linear layer over single frames in time."""

    per_sample: int = setting(8, "frames of each sample, evenly spaced", least=1)


def frames(task: Task, settings: FramesSettings, seed: int) -> Outcome:
    """One linear layer over single frames, each with its sample's label: phones, words or speakers of a recording.

    Regularization is chosen on frames held out of all training frames, not on samples of their own. A sample is
    classified by the sum of its frames' log probabilities. The interval of single frames is a bootstrap of samples,
    since frames of one sample are not independent.

    Reference: van den Oord et al. 2018, section 3.1, https://arxiv.org/abs/1807.03748
    """
    count = settings.per_sample
    train, test = (spaced_frames(task, part, count) for part in (task.train, task.test))  # (N, K, D)
    probe = linear_probe(
        train.flatten(0, 1),
        task.train.labels.repeat_interleave(count),
        classes=task.classes,
        validation=task.validation_fraction,
        seed=seed,
    )
    scores = probe(test.flatten(0, 1)).log_softmax(1).unflatten(0, (-1, count))  # (N, K, C)
    right = (scores.argmax(2) == task.test.labels[:, None]).float().mean(1)  # (N,)
    whole = scores.sum(1).argmax(1) == task.test.labels
    return Outcome(
        {
            "accuracy, single frames": mean_estimate(right, count=task.bootstrap, seed=seed),
            "accuracy, all frames": proportion(whole),
        },
        samples={"accuracy, single frames": SampleValues(right), "accuracy, all frames": SampleValues(whole)},
    )


def spaced_frames(task: Task, part: Part, count: int) -> Tensor:
    """(N, K, D), of each sample K frames evenly spaced over its length."""
    found = []
    for places in torch.arange(len(part)).split(task.compute.batch_size):
        h, present = task.frames(part.fetch(places))
        length = present.sum(1, keepdim=True)  # (B, 1)
        place = ((torch.arange(count, device=h.device) + 0.5) / count * length).long()  # (B, K)
        found.append(h.gather(1, place[:, :, None].expand(-1, -1, h.shape[2])).float().cpu())
    return torch.cat(found)


PROTOCOL = Protocol(
    "frames",
    frames,
    "linear readout of single frames in time",
    "accuracy, .*",
    FramesSettings,
    shared=("validation_fraction", "bootstrap"),
    has_frames=True,
    seeded=True,
    metrics=STYLES,
)
