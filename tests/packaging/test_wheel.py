"""A wheel of a clean tree trains the demo in an empty environment with the core alone; what it says of itself is so."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
import yaml

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


@pytest.mark.slow
def test_the_wheel_of_a_clean_tree_trains_with_the_core_alone(tmp_path: Path) -> None:
    """The packages of the core are this environment's, those of extras cannot be imported."""
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
    extras = {
        re.split(r"[^\w.-]", requirement)[0].replace("-", "_")
        for name, found in PROJECT["optional-dependencies"].items()
        if name not in ("all", "dev")
        for requirement in found
    } | {"faiss", "sklearn", "scipy"}  # what they are imported as
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    core = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    (site / "core.pth").write_text(f"{core}\nimport without_extras\n")
    (site / "without_extras.py").write_text(
        f"import sys\nREFUSED = {sorted(extras)}\nsys.modules.update(dict.fromkeys(REFUSED))\n"
    )
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
