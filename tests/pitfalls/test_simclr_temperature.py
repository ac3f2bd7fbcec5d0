"""0.07 is not SimCLR's temperature, and does something else with few negatives."""

import functools
import inspect

import torch
from torch import Tensor

from nearfar.lab.gradient import effective_negatives, negative_weights
from nearfar.lab.sphere import sphere_points
from nearfar.losses import nt_xent
from nearfar.losses.arguments import unit
from nearfar.methods import METHODS
from tests.losses.agreement import rows
from tests.pitfalls import world
from tests.pitfalls.page import as_told, code_of


def sharing(temperature: float) -> float:
    z = sphere_points(64 + 254, 128, torch.Generator().manual_seed(0))
    return float(effective_negatives(z[:64] @ z[64:].T, temperature).mean())


@functools.cache
def learned() -> tuple[Tensor, Tensor]:
    """Embeddings, and classes, that training at 0.5 has found."""
    return world.embedded(world.trained(lambda z1, z2: nt_xent(z1, z2, temperature=0.5)), 256, 60_000)


def push_on_the_own_class(temperature: float) -> float:
    """The part of the gradient in the similarities of negatives that falls on samples of the same class."""
    z, labels = learned()
    others = ~torch.eye(len(z), dtype=torch.bool)
    cosine = (unit(z) @ unit(z).T)[others].view(len(z), -1)
    same = (labels[:, None] == labels)[others].view(len(z), -1)
    return float(negative_weights(cosine, temperature)[same].sum() / len(z))


@functools.cache
def damage() -> dict[str, float]:
    met = inspect.signature(code_of("simclr_temperature")["simclr_loss"]).parameters["temperature"].default
    _, labels = learned()
    return {
        "negatives that share, 0.07": sharing(met),
        "negatives that share, 0.5": sharing(0.5),
        "push on the own class, 0.07": push_on_the_own_class(met),
        "push on the own class, 0.5": push_on_the_own_class(0.5),
        "part of the negatives that is of the class": float((labels[:, None] == labels).double().mean()),
    }


def test_a_low_temperature_leaves_few_negatives_and_those_are_of_the_own_class() -> None:
    found = damage()
    assert found["negatives that share, 0.07"] < 0.6 * found["negatives that share, 0.5"]
    assert found["push on the own class, 0.07"] > 1.5 * found["push on the own class, 0.5"]
    as_told("simclr_temperature", found, within=0.15, off=0.03)


def test_the_loss_as_met_is_right_but_for_its_temperature() -> None:
    z1, z2 = rows(2, 5, 4)
    met = code_of("simclr_temperature")["simclr_loss"]
    torch.testing.assert_close(met(z1, z2), nt_xent(z1, z2, temperature=0.07))


def test_each_method_has_the_temperature_of_its_paper() -> None:
    def default(name: str) -> float:
        return float(inspect.signature(METHODS[name]).parameters["temperature"].default)

    assert [default(name) for name in ("simclr", "simclr_v2", "instdisc", "moco_v1", "moco")] == [
        0.5,
        0.1,
        0.07,
        0.07,
        0.2,
    ]
