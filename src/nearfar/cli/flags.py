"""Flags of settings dataclasses: their help texts, and sections given as one value."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from jsonargparse import ArgumentParser

from nearfar.settings import help_texts, main_key, sections


def describe(parser: ArgumentParser, kind: type[Any], prefix: str = "") -> None:
    """Give the flags of settings, and the headings of their groups, their help texts."""
    texts, inner, main = help_texts(kind), sections(kind), main_key(kind)
    for action in parser._actions:
        if prefix and action.dest == prefix.rstrip(".") and main is not None:
            action.help, action.metavar = f"short for --{prefix}{main}", main.upper()
        name = action.dest.removeprefix(prefix) if action.dest.startswith(prefix) else ""
        if name in texts and (not action.help or name in inner):
            action.help = texts[name].replace("%", "%%")
    for group in parser._action_groups:
        if group.title == str(kind):
            group.title = first_line(kind)
    for name, each in inner.items():
        describe(parser, each, f"{prefix}{name}.")


def show_dashes(parser: ArgumentParser) -> None:
    """Let the help spell flags as --batch-size; the parser knows them as --batch_size, which `full_flags` makes."""
    for action in parser._actions:
        action.option_strings = [flag.replace("_", "-") for flag in action.option_strings]


def main_flags(kind: type[Any]) -> dict[str, str]:
    """The flags of sections that stand for another, their main key's.

    >>> from nearfar.config import TrainConfig
    >>> main_flags(TrainConfig)
    {'--data': '--data.path', '--views': '--views.preset', '--optimizer': '--optimizer.name'}
    """
    found = ((name, main_key(each)) for name, each in sections(kind).items())
    return {f"--{name}": f"--{name}.{key}" for name, key in found if key is not None}


def check_sections(arguments: Sequence[str], found: Mapping[str, type[Any]], prefix: str = "--") -> None:
    """Refuse a section given as a file, which the parser would read without limits: --config takes files."""
    for name, inner in found.items():
        check_sections(arguments, sections(inner), f"{prefix}{name}.")
        for argument, following in pairwise([*arguments, ""]):
            flag, equals, value = argument.partition("=")
            if flag == prefix + name and not (value if equals else following).startswith("{"):
                raise ValueError(f"{flag} is a section of settings: give one of them, as {flag}.KEY, or {{KEY: VALUE}}")


def first_line(kind: type[Any]) -> str:
    """What a configuration is, as its docstring begins."""
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0].rstrip(".:")
