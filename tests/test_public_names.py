"""`from nearfar.X import *` works for each package of building blocks, and brings what it promises."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = ["losses", "nn", "distributed", "adapters", "lab"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_is_there(package: str) -> None:
    module = importlib.import_module(f"nearfar.{package}")
    names: dict[str, object] = {}
    exec(f"from nearfar.{package} import *", names)
    assert set(module.__all__) <= names.keys()


def test_no_import_depends_on_the_order() -> None:
    code = "".join(f"from nearfar.{name} import *\n" for name in reversed(PACKAGES))
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
