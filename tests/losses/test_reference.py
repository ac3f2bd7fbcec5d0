"""Every loss against the plain definition below it in its file, which shares no code with the engine."""

import ast
import builtins
import inspect
from pathlib import Path

import pytest

from nearfar import losses
from nearfar.losses.reference import DEFINITIONS
from tests.losses.agreement import assert_near, number, rows, tiles_of, value_and_gradients

PLAIN = {"torch", "reference", "Tensor", "Sequence"}  # what a definition may use, beside other definitions


@pytest.mark.parametrize("side", [None, 3])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_value_and_gradient_equal_the_definition(name: str, side: int | None) -> None:
    loss, definition, call = DEFINITIONS[name]
    z1, z2 = rows(2, 12, 4)
    inputs = z1, z1 + 0.5 * z2, number(0.1)
    expected = value_and_gradients(lambda *x: call(definition, *x).mean(), *inputs)
    with tiles_of(side):
        found = value_and_gradients(lambda *x: call(loss, *x), *inputs)
    for a, b in zip(found, expected, strict=True):
        assert_near(a, b, 1e-10)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_is_below_its_loss(name: str) -> None:
    loss, definition, _ = DEFINITIONS[name]
    assert definition.__name__ == f"{name}_reference" and definition.__module__ == loss.__module__


def foreign_names(function: ast.FunctionDef) -> set[str]:
    """Names that a function reads and that are neither its own nor Python's."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {function.name}
    own |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {node.name for node in ast.walk(function) if isinstance(node, ast.FunctionDef)}
    return {node.id for node in names} - own - set(dir(builtins))


def test_a_definition_shares_no_code_with_the_engine() -> None:
    files = {Path(inspect.getfile(loss)) for loss, _, _ in DEFINITIONS.values()}
    found = 0
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and (node.name.endswith("_reference") or "_plain_" in node.name):
                node.decorator_list = []
                used = {n for n in foreign_names(node) if not n.endswith("_reference") and "_plain_" not in n}
                assert used <= PLAIN, f"{node.name} in {file.name} uses {sorted(used - PLAIN)}"
                found += 1
    assert found > len(DEFINITIONS)


def test_the_search_for_shared_code_finds_it() -> None:
    tree = ast.parse(inspect.getsource(losses.sup_con))
    assert isinstance(tree.body[0], ast.FunctionDef)
    assert {"l2_normalize", "similarity_logsumexp"} <= foreign_names(tree.body[0])
