"""One name for one thing: no two classes share a name, and what a package exports can be imported."""

import ast
import importlib
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "nearfar"
SHARED = {"NTXentLoss"}  # its name in both libraries that are adapted


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(PACKAGE)))
    shared = {name: files for name, files in places.items() if len(files) > 1}
    assert shared.keys() == SHARED, shared


PACKAGES = sorted(p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists() and p.name != "cli")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_a_few_names_that_exist(package: str) -> None:
    names: dict[str, object] = {}
    exec(f"from nearfar.{package} import *", names)
    exported = importlib.import_module(f"nearfar.{package}").__all__
    most = 60 if package == "methods" else 30  # which has a class for each paper
    assert exported and set(exported) <= names.keys() and len(exported) <= most
    assert len(exported) == len(set(exported))
