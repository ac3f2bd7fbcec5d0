"""Print every message of the package: errors, warnings, verdicts, help texts and console lines, with file and line.

python tools/messages.py            all of them, by kind
python tools/messages.py errors     one kind: errors, help, console or page
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
VERDICTS = {"Verdict", "NextStep", "_train", "Skipped"}
PAGE = {"sentence", "details", "figure", "_Metric"}
HELP = {"add_argument", "setting", "Parser", "ArgumentParser", "Protocol", "experiment"}
KINDS = ("errors", "help", "console", "page")
_SHORTEST = 12  # characters of a message; shorter ones are words
DOUBTFUL = {  # what plain English avoids, by pattern
    "is none": r"\b(?:is|are|be) none\b|\bis no\b(?! longer)",
    "of its own": r"\b(?:a|of) .{3,25} of its own\b",
    "trailing comma + too": r", too\b",
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
        found += [Message(kind, name, line, text) for kind, line, text in _of(tree)]
    return list(dict.fromkeys(found))


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
                if len(text) >= _SHORTEST and " " in text and not text.startswith(("<", "%(")):
                    yield kind, part.lineno, text


def _named(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name.endswith(("Error", "Exception")):
        return "errors"
    kinds = {"console": CONSOLE | VERDICTS, "page": PAGE, "help": HELP}
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
