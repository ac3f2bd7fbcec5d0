"""Imports point one way, and the losses need torch alone."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "nearfar"

# Packages in the order of their imports: each may import those before it, and itself.
ORDER = [
    ["losses", "config", "data", "plugins"],
    ["nn", "weights"],
    ["distributed"],
    ["methods", "adapters"],
    ["modalities"],
    ["model"],
    ["evaluation"],
    ["report"],
    ["training"],
    ["search", "recipes"],
    ["doctor", "explore", "lab", "selection"],
    ["cli"],
]
ANYWHERE = {
    "__version__",
    "_import_hook",
    "_torchvision",
    "_torchvision_operators",
    "child_process",
    "devices",
    "environment",
    "lazy",
    "messages",
    "metric_text",
    "notebook",
    "progress",
    "python_objects",
    "safe_read",
    "settings",
    "yaml_reader",
}  # for all
ALONE = {"losses", "data"}  # import no other package
MAY_IMPORT = {
    package: set() if package in ALONE else {other for row in ORDER[:place] for other in row}
    for place, packages in enumerate(ORDER)
    for package in packages
}


def imported_packages(file: Path) -> dict[str, int]:
    """The packages of nearfar that a file imports, anywhere in it, each with the first line that does."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module == "nearfar":
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nearfar."):
            names = [str(node.module).split(".")[1]]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("nearfar.")]
        for name in names:
            found[name] = min(node.lineno, found.get(name, node.lineno))  # type: ignore[attr-defined]
    return {name: line for name, line in found.items() if name not in ANYWHERE}


@pytest.mark.parametrize("package", sorted(p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()))
def test_imports_point_one_way(package: str) -> None:
    if package not in MAY_IMPORT:
        pytest.fail(f"nearfar.{package} has no place in ORDER: add it to the row of what may import it", pytrace=False)
    allowed = MAY_IMPORT[package] | {package}
    wrong = [
        f"  src/nearfar/{file.relative_to(PACKAGE)}:{line} imports nearfar.{name}"
        for file in sorted((PACKAGE / package).rglob("*.py"))
        for name, line in sorted(imported_packages(file).items())
        if name not in allowed
    ]
    if wrong:
        may = ", ".join(sorted(MAY_IMPORT[package])) or "no other package"
        pytest.fail(f"nearfar.{package} may import {may}, but\n" + "\n".join(wrong), pytrace=False)


def test_the_direction_test_sees_an_import(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "def f():\n    from nearfar.training import x\n    import nearfar.cli.check\n    from nearfar import methods\n"
    )
    assert imported_packages(file) == {"training": 2, "cli": 3, "methods": 4}


def requirements_of_torch() -> set[str]:
    """torch and what it needs, by distribution name."""
    found, waiting = set(), ["torch"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        found.add(name)
        waiting += [re.split(r"[ ;<>=!~\[(]", r)[0] for r in requires if "extra ==" not in r]
    return found


def test_losses_need_torch_alone(tmp_path: Path) -> None:
    for name in requirements_of_torch():
        for file in importlib.metadata.files(name) or []:
            top = Path(file.parts[0])
            place = tmp_path / top
            if file.parts[0] not in ("..", "__pycache__") and not place.exists():
                place.symlink_to(file.locate().parents[len(file.parts) - 1] / top)
    (tmp_path / "nearfar").symlink_to(PACKAGE)
    program = (
        "import importlib.util as u\n"
        "absent = [m for m in ('numpy', 'torchvision', 'lightning', 'rich', 'timm') if u.find_spec(m)]\n"
        "assert not absent, absent\n"
        "import torch, nearfar.losses as losses\n"
        "z = torch.randn(2, 4, 3, requires_grad=True)\n"
        "losses.nt_xent(z[0], z[1], temperature=0.1).backward()\n"
        "assert z.grad.isfinite().all()\n"
        "print('works')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONNOUSERSITE": "1"}
    run = subprocess.run(
        [sys.executable, "-S", "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True
    )
    assert run.stdout.strip() == "works", run.stderr
