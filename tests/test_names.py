"""One name for one thing: no two classes share a name, and what a package exports can be imported."""

import ast
import importlib
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "nearfar"
# To be renamed, all but NTXentLoss, which has that name in both libraries that are adapted.
SHARED = {"Batch", "Drawn", "Line", "NTXentLoss", "Plan", "Recipe", "Row", "Task"}


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(PACKAGE)))
    shared = {name: files for name, files in places.items() if len(files) > 1}
    assert shared.keys() == SHARED, shared


@pytest.mark.parametrize("package", ["doctor", "explore", "recipes", "report", "search"])
def test_a_package_exports_a_few_names_that_exist(package: str) -> None:
    module = importlib.import_module(f"nearfar.{package}")
    assert all(hasattr(module, name) for name in module.__all__) and len(module.__all__) <= 10
