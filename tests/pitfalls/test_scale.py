"""Class probabilities without the scale: right in their order, wrong as probabilities."""

import functools
import math

import torch
from torch import Tensor

from nearfar.evaluation.protocols.zero_shot import zero_shot_scores
from nearfar.lab.sphere import sphere_points
from tests.pitfalls.page import Numbers, as_told, code_of

N, CLASSES, D, SPREAD = 2000, 10, 64, 0.3
# z = class + spread · noise has the posterior softmax(<z, class> / spread²), and |z| is nearly the same of all
SCALE = math.sqrt(1 + SPREAD**2 * D) / SPREAD**2


def calibration_error(p: Tensor, labels: Tensor, bins: int = 15) -> float:
    """How far confidence is from accuracy, on average over bins of confidence: Guo et al. 2017, eq. 3."""
    confidence, answer = p.max(1)
    place = (confidence * bins).long().clamp(max=bins - 1)
    off = confidence - (answer == labels).double()
    return float(torch.zeros(bins, dtype=torch.float64).index_add(0, place, off).abs().sum() / len(p))


@functools.cache
def damage() -> Numbers:
    generator = torch.Generator().manual_seed(0)
    classes = sphere_points(CLASSES, D, generator)
    labels = torch.randint(CLASSES, (N,), generator=generator)
    images = classes[labels] + SPREAD * torch.randn(N, D, generator=generator, dtype=torch.float64)
    found = {}
    for name, p in (
        ("wrong", code_of("scale")["class_probabilities"](images, classes)),
        ("right", zero_shot_scores(images, classes, logit_scale=SCALE)),
    ):
        found["named right"] = float((p.argmax(1) == labels).double().mean())
        found[f"mean probability of the answer, {name}"] = float(p.amax(1).mean())
        found[f"calibration error, {name}"] = calibration_error(p, labels)
    return found


def claim(numbers: Numbers) -> None:
    assert numbers["mean probability of the answer, wrong"] < 0.2 < 0.8 < numbers["named right"]
    assert abs(numbers["mean probability of the answer, right"] - numbers["named right"]) < 0.02
    assert numbers["calibration error, right"] < 0.03 < 0.5 < numbers["calibration error, wrong"]


def test_the_order_is_right_and_the_probabilities_are_not() -> None:
    as_told("scale", damage(), claim)
