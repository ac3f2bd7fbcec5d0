"""docs/concepts/methods.md: every method is there, and what the tables say of cost, temperature and paper is so."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from nearfar.methods import CLIP, CMC, CPC, METHODS, Method

pytestmark = pytest.mark.docs

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "methods.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]
TASKS = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 6}
COSTS = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 5}


def test_every_method_is_in_both_tables() -> None:
    assert sorted(TASKS) == sorted(COSTS) == sorted(METHODS)


def first_layers(method: Method) -> list[nn.Module]:
    """Of each network that encodes samples, copies included, the layer that sees them first."""
    encoders: list[Any] = [method.encoder, getattr(method, "key_network", None), getattr(method, "target", None)]
    if isinstance(method, CPC):
        return [method.encoder.norms[0]]  # type: ignore[index, list-item, union-attr]  what is called of it first
    if isinstance(method, CMC):
        encoders = [method.encoder.lightness, method.encoder.color]
    if isinstance(method, CLIP):
        encoders = [method.encoder.first, method.encoder.second]
    return [next(m for m in e.modules() if not list(m.children()) and list(m.parameters())) for e in encoders if e]


@pytest.mark.parametrize("name", METHODS)
def test_passes_are_those_that_a_step_makes(name: str) -> None:
    method, (batch, _) = METHODS[name].toy()
    method.double().train()
    if name == "simcse":
        method.mlm = 0.0  # masked words are a pass of their own
    rows = {True: 0, False: 0}

    def count(module: nn.Module, _: Any, out: Tensor) -> None:
        rows[out.requires_grad] += len(out)

    for layer in first_layers(method):
        layer.register_forward_hook(count)
    method(batch)
    seen = " + ".join(str(round(rows[gradient] / len(batch.index), 2)).removesuffix(".0") for gradient in (True, False))
    assert COSTS[name][0] == seen


@pytest.mark.parametrize("name", METHODS)
def test_temperature_and_memory_are_the_defaults(name: str) -> None:
    given, (_, remembers, temperature, _) = METHODS[name].options(), COSTS[name]
    numbers = [int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", remembers)]
    if "temperature" in given:
        assert float(temperature) == given["temperature"]
    elif "logit_scale" in given:
        started = METHODS[name].toy()[0]
        assert isinstance(started, CLIP) and temperature.startswith("learned, from ")
        assert float(temperature.removeprefix("learned, from ")) == pytest.approx(started.temperature, rel=1e-5)
    else:
        assert temperature == "–"
    if given.get("queue_size"):
        assert numbers == [given["queue_size"], given["dim"]]
    elif name in ("instdisc", "pirl"):
        assert numbers == [given["dim"]]
    else:
        assert not numbers
    method = METHODS[name].toy()[0]
    assert ("copy of the network" in remembers) == (hasattr(method, "key_network") or hasattr(method, "target"))


@pytest.mark.parametrize("name", METHODS)
def test_the_paper_is_the_one_that_the_code_names(name: str) -> None:
    (link,) = re.findall(r"\]\((.*?)\)", COSTS[name][3])
    assert link in (inspect.getdoc(METHODS[name]) or "")
