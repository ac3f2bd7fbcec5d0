"""A wheel of a clean tree trains the demo in an empty environment with the core alone; what it says of itself is so."""

import json
import os
import re
import shutil
import subprocess
import tomllib
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import nearfar

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEMO = "train --data glyphs:200 --backbone micro --epochs 1 --batch-size 64 --out run"


def test_every_file_states_the_same_version_and_license() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == nearfar.__version__ and citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]
    recipe = (ROOT / "recipe" / "meta.yaml").read_text()
    assert f'version = "{nearfar.__version__}"' in recipe
    conda = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    for requirement in PROJECT["dependencies"]:
        name, least = requirement.split(">=")
        assert f"- {conda.get(name, name)} >={least}\n" in recipe, requirement


def test_workflows_and_forms_are_yaml_and_test_the_pythons_that_are_claimed() -> None:
    files = sorted((ROOT / ".github").rglob("*.yml"))
    assert len(files) >= 5 and all(yaml.safe_load(file.read_text()) for file in files)
    claimed = {match[1] for line in PROJECT["classifiers"] if (match := re.search(r"Python :: (3\.\d+)$", line))}
    checks = (ROOT / ".github" / "workflows" / "checks.yml").read_text()
    assert claimed <= set(re.findall(r'"(3\.\d+)"', checks))


def core_packages() -> set[Path]:
    """The entries of site-packages that the core's requirements have brought, those of extras left out."""
    found, todo, entries = set[str](), list(PROJECT["dependencies"]), set[Path]()
    while todo:
        requirement = Requirement(todo.pop())
        name = requirement.name.lower().replace("_", "-")
        if name in found or (requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            package = distribution(requirement.name)
        except PackageNotFoundError:
            continue
        todo += package.requires or []
        tops = {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}
        entries |= {Path(str(package.locate_file(top))) for top in tops}
    assert "torch" in found and "scipy" not in found
    return entries


@pytest.mark.slow
def test_the_wheel_of_a_clean_tree_trains_with_the_core_alone(tmp_path: Path) -> None:
    """The packages of the core, and what they require, are this environment's; nothing else is there."""
    wheels = pytest.importorskip("hatchling.builders.wheel")
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("a clean tree is one of git")
    tree = tmp_path / "tree"
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    tree.mkdir()
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    (made,) = wheels.WheelBuilder(str(tree)).build(directory=str(tmp_path), versions=["standard"])
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", "--no-index", made], check=True)
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    for entry in core_packages():
        if not (site / entry.name).exists():  # pip and setuptools are there already
            (site / entry.name).symlink_to(entry)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean["NEARFAR_CACHE"] = str(tmp_path / "cache")
    code = "import nearfar, pathlib; print(pathlib.Path(nearfar.__file__).is_relative_to(pathlib.Path().absolute()))"
    where = subprocess.run(
        [str(python), "-c", code], cwd=tmp_path, env=clean, capture_output=True, text=True, check=True
    )
    assert where.stdout.strip() == "True"
    command = [str(tmp_path / "env" / "bin" / "nearfar"), *DEMO.split()]
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["results"]
    assert (tmp_path / "run" / "report.html").exists()
