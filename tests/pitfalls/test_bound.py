"""Without the positive in the denominator, what looks like a bound on information is above it."""

import functools
import math

import torch

from nearfar.lab.estimators import correlated_gaussians, correlation_from_information, info_nce_bound, optimal_critic
from tests.pitfalls.page import Numbers, as_told, code_of

TRUTH, D, N, BATCHES = 8.0, 8, 64, 50


@functools.cache
def damage() -> Numbers:
    met, rho = code_of("bound")["information"], correlation_from_information(TRUTH, D)
    generator = torch.Generator().manual_seed(0)
    wrong, right = [], []
    for _ in range(BATCHES):
        u, w = optimal_critic(*correlated_gaussians(N, D, rho, generator, torch.float64), rho)
        wrong.append(float(met(u, w)))
        right.append(float(info_nce_bound(u, w)))
    return {
        "estimate, wrong": sum(wrong) / BATCHES,
        "true information": TRUTH,
        "estimate, right": sum(right) / BATCHES,
        "log N": math.log(N),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["estimate, wrong"] > numbers["true information"] + 1
    assert numbers["estimate, right"] <= numbers["log N"] < numbers["true information"]


def test_the_estimate_is_above_the_truth_and_the_bound_below() -> None:
    as_told("bound", damage(), claim)
