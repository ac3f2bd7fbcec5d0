"""Print every message of the package: errors, warnings, verdicts, help texts and console lines, with file and line.

python tools/messages.py            all of them, by kind
python tools/messages.py errors     one kind: errors, help, console, verdicts or page
python tools/messages.py --doubtful those that break a rule of plain English (a list of patterns), for a second look

Texts are found in the syntax tree, so that none is left out; {} stands for a value.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "nearfar"
CONSOLE = {"print", "print_line", "print_note", "say", "tell", "notify", "announce", "stage", "status", "warn"}
PAGE = {"sentence", "details", "figure", "_Metric"}
HELP = {"add_argument", "setting", "Parser", "ArgumentParser", "Protocol", "experiment"}
KINDS = ("errors", "help", "console", "verdicts", "page")
WHOLE = {  # files whose texts are all messages
    "cli/help_text.py": "help",
    "methods/advice.py": "verdicts",
    "report/judgement.py": "verdicts",
    "report/next_step.py": "verdicts",
    "report/verdict.py": "verdicts",
    "training/advice.py": "verdicts",
    "training/health.py": "verdicts",
}
_SHORTEST = 12  # characters of a message; shorter ones are words
DOUBTFUL = {  # what plain English avoids, by pattern
    "is none": r"(?<!there )\b(?:is|are|be) (?:none|no)\b(?! longer)",
    "of its own": r"\b(?:a|of) .{3,25} of its own\b",
    "comma before too": r", too\b(?! \w+ to)",
    "where there is": r"\bwhere there (?:is|are)\b",
    "but for": r"\bbut for\b",
    "mended": r"\bmend(?:ed|s)?\b",
    "who/whoever": r"\bwho(?:ever)? (?!trained|made)\w+",
    "such as may": r"\bmay not\b",
    "anew": r"\banew\b",
    "apart": r"\bapart from\b|\bset apart\b",
    "alike": r"\balike\b",
    "goes with": r"\bgoes? (?:on|with)\b",
    "by itself": r"\bby (?:itself|themselves)\b",
    "that is what": r"\bthat is what\b|\bwhat is\b",
    "as it/they": r"\bas (?:it is|they are)\b",
    "nothing": r"\bnothing (?:is|was|are)\b",
    "stands for": r"\bstands? for\b",
    "say so": r"\bsays? (?:so|otherwise)\b",
}


@dataclass(frozen=True)
class Message:
    kind: str
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def messages() -> list[Message]:
    """Every message, in the order of the files."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        name = str(file.relative_to(PACKAGE))
        tree = ast.parse(file.read_text(encoding="utf-8"))
        own = WHOLE.get(name)
        parts = _of(tree) if own is None else ((own, line, text) for line, text in _all(tree))
        found += [Message(kind, name, line, text) for kind, line, text in parts]
    return list(dict.fromkeys(found))


def _all(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """All texts but docstrings and patterns."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        whole = isinstance(node, ast.JoinedStr) or id(node) not in inside
        if whole and isinstance(node, ast.Constant | ast.JoinedStr):
            yield from ((node.lineno, text) for text in _texts(node) if _is_message(text))


def _is_message(text: str) -> bool:
    return len(text) >= _SHORTEST and " " in text and not text.startswith(("<", "%("))


def _of(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kind, call = "errors", node.exc
        elif isinstance(node, ast.Call) and (named := _named(node)) is not None:
            kind, call = named, node
        else:
            continue
        for part in [*call.args, *(keyword.value for keyword in call.keywords)]:
            for text in _texts(part):
                if _is_message(text):
                    yield kind, part.lineno, text


def _named(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name.endswith(("Error", "Exception")):
        return "errors"
    if name in ("append", "extend") and isinstance(call.func, ast.Attribute):
        return "console" if "note" in ast.unparse(call.func.value) else None
    kinds = {"console": {*CONSOLE, "Skipped"}, "page": PAGE, "help": HELP}
    return next((kind for kind, names in kinds.items() if name in names), None)


def _texts(node: ast.AST) -> Iterator[str]:
    """Whole texts below a node, with {} for values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield " ".join(node.value.split())
    elif isinstance(node, ast.JoinedStr):
        yield " ".join("".join(_part(each) for each in node.values).split())
    elif not isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def _part(node: ast.AST) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def doubts(text: str) -> list[str]:
    """The rules that a text may break."""
    return [name for name, pattern in DOUBTFUL.items() if re.search(pattern, text)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kind", nargs="?", choices=KINDS, help="one kind of message (default: all)")
    parser.add_argument("--doubtful", action="store_true", help="only those that may break a rule of plain English")
    options = parser.parse_args(arguments)
    found = [each for each in messages() if options.kind in (None, each.kind)]
    if options.doubtful:
        found = [each for each in found if doubts(each.text)]
    for kind in KINDS:
        if some := [each for each in found if each.kind == kind]:
            print(f"{kind}: {len(some)}")
            for each in some:
                print(f"  {each}{'  # ' + ', '.join(doubts(each.text)) if options.doubtful else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
