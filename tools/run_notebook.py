"""Runs the cells of a notebook in this process and stores what they print, with no server of notebooks installed.

    python tools/run_notebook.py examples/photos_to_search.ipynb

A cell is plain Python. What it prints becomes its output, and the value of a last line that is an expression is shown,
too: a picture of Pillow as a picture. A digest of all cells is stored with the outputs, so that a test sees whether
these are of other cells.
"""

import ast
import base64
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image


def digest(notebook: dict[str, Any]) -> str:
    """Of the sources of all cells of code."""
    cells = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:16]


def shown(value: Any) -> dict[str, Any]:
    """The data of an output, by kind."""
    if not isinstance(value, Image.Image):
        return {"text/plain": str(value).splitlines(keepends=True)}
    content = io.BytesIO()
    value.save(content, "PNG")
    return {"image/png": base64.b64encode(content.getvalue()).decode(), "text/plain": ["a picture"]}


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of a cell."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": shown(value)})
    return outputs


def run_notebook(notebook: dict[str, Any]) -> None:
    """Run every cell in a folder of its own, and put the outputs into the notebook."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            cells = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
            for number, cell in enumerate(cells, 1):
                cell["outputs"], cell["execution_count"] = run_cell("".join(cell["source"]), names), number
        finally:
            os.chdir(before)
    notebook["metadata"]["executed"] = digest(notebook)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    content = json.loads(file.read_text(encoding="utf-8"))
    run_notebook(content)
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
