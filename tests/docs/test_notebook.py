"""The notebook runs, and the outputs in it are of the cells that it has."""

import json
from pathlib import Path
from typing import Any

import pytest

from tools.run_notebook import digest, run_notebook

FILE = Path(__file__).parents[2] / "examples" / "photos_to_search.ipynb"


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def kinds(notebook: dict[str, Any]) -> list[list[str]]:
    """Of the outputs of each cell of code."""
    return [
        [kind for output in cell["outputs"] for kind in output.get("data", {output["output_type"]: ""})]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_the_outputs_are_of_these_cells() -> None:
    notebook = read()
    assert notebook["metadata"]["executed"] == digest(notebook), f"python tools/run_notebook.py {FILE.name}"
    assert ["image/png", "text/plain"] in kinds(notebook)
    text = json.dumps(notebook)
    assert "Traceback" not in text and "/home/" not in text and "/tmp/" not in text


@pytest.mark.slow
@pytest.mark.docs
def test_it_runs_and_shows_the_same_kinds_again() -> None:
    notebook, stored = read(), read()
    run_notebook(notebook)
    assert kinds(notebook) == kinds(stored)
