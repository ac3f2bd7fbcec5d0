"""All methods as text: for the command `nearfar methods`, and as the table of the docs."""

import inspect
import textwrap
from collections.abc import Sequence

from nearfar.methods import METHODS
from nearfar.methods.method import Method


def methods_for(modality: str | None = None) -> list[type[Method]]:
    """Those for one kind of data, or all, by name."""
    served = sorted({each for kind in METHODS.values() for each in kind.modalities})
    if modality is not None and modality not in served:
        raise ValueError(f"--modality is {modality!r}, expected one of {', '.join(served)}")
    return [kind for kind in METHODS.values() if modality is None or modality in kind.modalities]


def needs(kind: type[Method]) -> str:
    """What a method needs beside samples.

    >>> needs(METHODS["supcon"]), needs(METHODS["simclr"])
    ('labels', 'samples alone')
    """
    declared = {"labels": kind.needs_labels, "pairs with scores": kind.needs_scores, "captions": kind.uses_captions}
    found = [words for words, needed in declared.items() if needed]
    return ", ".join([*found, *([kind.also_needs] if kind.also_needs else [])]) or "samples alone"


def short_text(kind: type[Method]) -> str:
    """One method in a few lines."""
    who, link = kind.reference
    lines = [
        f"{kind.name}  ({', '.join(kind.modalities)})",
        f"  choose it when: {kind.when}",
        f"  needs: {needs(kind)}",
        f"  paper: {who}, {link}",
    ]
    return "\n".join(lines)


def line(kind: type[Method], width: int = 80) -> str:
    """One method as a row of a list: its name, its data, and when to choose it.

    >>> print(line(METHODS["scarf"]))
    scarf         table: rows are numbers and categories, and few have labels
    """
    whole = f"{', '.join(kind.modalities)}: {kind.when}"
    return textwrap.fill(whole, width, initial_indent=f"{kind.name:<14}", subsequent_indent=" " * 14)


def full_text(kind: type[Method]) -> str:
    """What a method does, and its options with their defaults."""
    options = [f"  --options.{name} {_shown(value)}" for name, value in kind.options().items()]
    described = inspect.getdoc(kind) or ""
    return "\n".join([short_text(kind), "", described, "", "options and their defaults:", *options])


def as_markdown(kinds: Sequence[type[Method]]) -> str:
    """The table of docs/how-to/method.md."""
    rows = [
        f"| `{kind.name}` | {', '.join(kind.modalities)} | {kind.when} | {needs(kind)} | "
        f"[{kind.reference[0]}]({kind.reference[1]}) |"
        for kind in kinds
    ]
    return "\n".join(["| method | for | choose it when | needs | paper |", "|---|---|---|---|---|", *rows])


def _shown(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
