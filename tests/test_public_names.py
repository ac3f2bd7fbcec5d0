"""`from nearfar.X import *` works for each package of building blocks, and brings what it promises."""

import importlib
import subprocess
import sys

import pytest

from tests.support.facts import tells

PACKAGES = ["losses", "nn", "distributed", "adapters", "lab", "model", "explore"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_is_there(package: str) -> None:
    module = importlib.import_module(f"nearfar.{package}")
    names: dict[str, object] = {}
    exec(f"from nearfar.{package} import *", names)
    assert set(module.__all__) <= names.keys()


def test_no_import_depends_on_the_order() -> None:
    code = "".join(f"from nearfar.{name} import *\n" for name in reversed(PACKAGES))
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_the_explorer_is_imported_without_its_extra_and_asks_for_it_when_called() -> None:
    code = """
import sys
sys.modules.update(fastapi=None, uvicorn=None)
from nearfar.explore import *
try:
    make_app([])
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True, text=True)
    assert tells(done.stdout, "fastapi uvicorn nearfar[serve]") and done.stdout.count("\n") == 1
