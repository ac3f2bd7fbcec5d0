"""A file is a room, a function fits a screen, and a call has few parameters."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "nearfar"
FILE_LINES, FUNCTION_LINES = 350, 80
PARAMETERS, OPTIONS = 10, 12  # of a function; of a constructor, whose options a method has as keyword parameters


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{file.relative_to(PACKAGE)}:{node.lineno} {node.name}", node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    kernel = any("triton.jit" in ast.unparse(each) for each in function.decorator_list)  # what a launch passes
    return 0 if kernel else len([name for name in names if name not in ("self", "cls")])


def test_no_file_is_long() -> None:
    lines = {
        str(f.relative_to(PACKAGE)): len(f.read_text(encoding="utf-8").splitlines()) for f in PACKAGE.rglob("*.py")
    }
    assert not {name: count for name, count in lines.items() if count > FILE_LINES}


def test_no_function_is_long() -> None:
    lines = {place: (node.end_lineno or 0) - node.lineno + 1 for place, node in functions()}
    assert not {place: count for place, count in lines.items() if count > FUNCTION_LINES}


def test_no_call_has_many_parameters() -> None:
    counts = {
        place: (parameters(node), OPTIONS if node.name == "__init__" else PARAMETERS) for place, node in functions()
    }
    assert not {place: count for place, (count, limit) in counts.items() if count > limit}
