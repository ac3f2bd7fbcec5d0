"""Help for the flags of settings dataclasses: the text that a field declares, else the comment behind it."""

import inspect
import re
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from jsonargparse import ArgumentParser

_FIELD = re.compile(r"^    (\w+): .*?  # (.+)$", re.MULTILINE)


def describe(parser: ArgumentParser, kind: type[Any], prefix: str = "") -> None:
    """Give the flags of settings, and the headings of their groups, their help texts."""
    texts = help_texts(kind)
    for action in parser._actions:
        text = texts.get(action.dest.removeprefix(prefix)) if action.dest.startswith(prefix) else None
        if text and not action.help:
            action.help = text.replace("%", "%%")
    for group in parser._action_groups:
        if group.title == str(kind):
            group.title = first_line(kind)
    hints = get_type_hints(kind)
    for field in fields(kind):
        inner = hints[field.name]
        if isinstance(inner, type) and is_dataclass(inner):
            describe(parser, inner, f"{prefix}{field.name}.")


def help_texts(kind: type[Any]) -> dict[str, str]:
    """The help text of each field by its name."""
    return comments(kind) | {each.name: each.metadata["help"] for each in fields(kind) if "help" in each.metadata}


def comments(kind: type[Any]) -> dict[str, str]:
    """The comment of each field by its name; nothing where there is no source.

    >>> from nearfar.config import DataConfig
    >>> comments(DataConfig)["strict"]
    'stop at a broken file instead of skipping it'
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        try:
            found |= dict(_FIELD.findall(inspect.getsource(each)))
        except (OSError, TypeError):
            continue
    return found


def first_line(kind: type[Any]) -> str:
    """What a configuration is, as its docstring begins."""
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0].rstrip(".:")
