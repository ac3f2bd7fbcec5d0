"""A linear readout of frames: is the label of a sample there at every moment of it?"""

import torch
from torch import Tensor

from nearfar.evaluation.embedding import _device_of, _evaluating
from nearfar.evaluation.linear import linear_probe
from nearfar.evaluation.metrics import mean_estimate, share
from nearfar.evaluation.task import Outcome, Part, Task


def frame_readout(task: Task, seed: int) -> Outcome:
    """One linear layer over single frames, each with its sample's label: phones, words or speakers of a recording.

    Of every sample as many frames are taken, evenly spaced. The strength is chosen on frames held out of all training
    frames, not on samples of their own. A sample is classified by the sum of its frames' log probabilities. The
    interval of single frames is of samples resampled, since frames of one sample are not independent.

    Reference: van den Oord et al. 2018, section 3.1, https://arxiv.org/abs/1807.03748
    """
    train, test = (some_frames(task, part) for part in (task.train, task.test))  # (N, K, D)
    count = train.shape[1]
    probe = linear_probe(
        train.flatten(0, 1),
        task.train.labels.repeat_interleave(count),
        classes=task.classes,
        validation=task.settings.validation,
        seed=seed,
    )
    scores = probe(test.flatten(0, 1)).log_softmax(1).unflatten(0, (-1, count))  # (N, K, C)
    right = (scores.argmax(2) == task.test.labels[:, None]).float().mean(1)  # (N,)
    whole = scores.sum(1).argmax(1) == task.test.labels
    return Outcome(
        {
            "accuracy, single frames": mean_estimate(right, count=task.settings.resamples, seed=seed),
            "accuracy, all frames": share(whole),
        }
    )


@torch.no_grad()
def some_frames(task: Task, part: Part) -> Tensor:
    """(N, K, D), of each sample K frames evenly spaced over its length."""
    encoder, many = task.encoder, task.settings.frames
    device = _device_of(encoder) if task.device is None else torch.device(task.device)
    found = []
    with _evaluating(encoder):
        for places in torch.arange(len(part)).split(task.batch_size):
            frames, present = encoder.frames(task.prepare(part.fetch(places).to(device)))  # type: ignore[attr-defined]
            length = present.sum(1, keepdim=True)  # (B, 1)
            place = ((torch.arange(many, device=device) + 0.5) / many * length).long()  # (B, K)
            found.append(frames.gather(1, place[:, :, None].expand(-1, -1, frames.shape[2])).float().cpu())
    return torch.cat(found)
