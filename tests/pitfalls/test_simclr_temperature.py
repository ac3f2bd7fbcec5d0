"""0.07 is not SimCLR's temperature: the task is another, although these small encoders are hardly worse."""

import functools
import inspect

import torch
from torch import Tensor

from nearfar.lab.gradient import effective_negatives, negative_weights
from nearfar.lab.sphere import sphere_points
from nearfar.losses import nt_xent
from nearfar.losses.arguments import l2_normalize
from nearfar.methods import METHODS
from tests.losses.agreement import rows
from tests.pitfalls import world
from tests.pitfalls.page import Numbers, as_told, code_of

NETWORKS = 6
WITHIN = {
    "loss of the same embeddings, 0.07": 0.02,
    "loss of the same embeddings, 0.5": 0.02,
    "push on the own class, 0.07": 0.008,
    "push on the own class, 0.5": 0.008,
    "k-NN, 0.07": 0.004,
    "k-NN, 0.5": 0.004,
    "standard error of their difference": 0.00023,
}


def sharing(temperature: float) -> float:
    z = sphere_points(64 + 254, 128, torch.Generator().manual_seed(0))
    return float(effective_negatives(z[:64] @ z[64:].T, temperature).mean())


def trained(temperature: float, seed: int = 0) -> torch.nn.Module:
    return world.trained(lambda z1, z2: nt_xent(z1, z2, temperature=temperature), seed=seed)


@functools.cache
def learned() -> torch.nn.Module:
    """What training at 0.5 has found."""
    return trained(0.5)


def loss_of_the_learned(temperature: float) -> float:
    ((view1, view2),) = world.batches(1, seed=7)
    z1, z2 = learned()(view1), learned()(view2)
    return float(code_of("simclr_temperature")["simclr_loss"](z1, z2, temperature).detach())


def push_on_the_own_class(temperature: float) -> float:
    """The part of the gradient in the similarities of negatives that falls on samples of the same class."""
    z, labels = world.embedded(learned(), 256, 60_000)
    others = ~torch.eye(len(z), dtype=torch.bool)
    cosine = (l2_normalize(z) @ l2_normalize(z).T)[others].view(len(z), -1)
    same = (labels[:, None] == labels)[others].view(len(z), -1)
    return float(negative_weights(cosine, temperature)[same].sum() / len(z))


def own_class() -> float:
    """The part of the push that would fall on the own class if all negatives were pushed alike."""
    _, labels = world.samples(256, 60_000)
    return float((labels[:, None] == labels).double().mean())


def accuracies(temperature: float) -> Tensor:
    """(NETWORKS,) k-NN of networks that start and see otherwise."""
    found = [world.knn(trained(temperature, seed), n=5000) for seed in range(NETWORKS)]
    return torch.tensor(found, dtype=torch.float64)


@functools.cache
def damage() -> Numbers:
    met = inspect.signature(code_of("simclr_temperature")["simclr_loss"]).parameters["temperature"].default
    low, high = accuracies(met), accuracies(0.5)
    return {
        "loss of the same embeddings, 0.07": loss_of_the_learned(met),
        "loss of the same embeddings, 0.5": loss_of_the_learned(0.5),
        "negatives that share, 0.07": sharing(met),
        "negatives that share, 0.5": sharing(0.5),
        "push on the own class, 0.07": push_on_the_own_class(met),
        "push on the own class, 0.5": push_on_the_own_class(0.5),
        "part of the negatives that is of the class": own_class(),
        "k-NN, 0.07": float(low.mean()),
        "k-NN, 0.5": float(high.mean()),
        "standard error of their difference": float((low - high).std() / NETWORKS**0.5),
    }


def claim(numbers: Numbers) -> None:
    assert numbers["loss of the same embeddings, 0.07"] < numbers["loss of the same embeddings, 0.5"] - 1
    assert numbers["negatives that share, 0.07"] < 0.6 * numbers["negatives that share, 0.5"]
    assert numbers["push on the own class, 0.07"] > 2 * numbers["push on the own class, 0.5"]
    assert numbers["push on the own class, 0.5"] > 2 * numbers["part of the negatives that is of the class"]
    assert abs(numbers["k-NN, 0.07"] - numbers["k-NN, 0.5"]) < 0.01
    assert abs(numbers["k-NN, 0.07"] - numbers["k-NN, 0.5"]) < 3 * numbers["standard error of their difference"]


def test_another_task_whose_encoders_are_hardly_worse() -> None:
    as_told("simclr_temperature", damage(), claim, WITHIN)


def test_the_loss_as_met_is_right_but_for_its_temperature() -> None:
    z1, z2 = rows(2, 5, 4)
    met = code_of("simclr_temperature")["simclr_loss"]
    torch.testing.assert_close(met(z1, z2), nt_xent(z1, z2, temperature=0.07))


def test_each_method_has_the_temperature_of_its_paper() -> None:
    def default(name: str) -> float:
        return float(METHODS[name].options()["temperature"])

    assert [default(name) for name in ("simclr", "simclr_v2", "instdisc", "moco_v1", "moco")] == [
        0.5,
        0.1,
        0.07,
        0.07,
        0.2,
    ]
