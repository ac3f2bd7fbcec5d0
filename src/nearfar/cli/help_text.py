"""The help of commands with many flags: first the ten that people use, with --help-all every one. Needs no torch."""

import shutil
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

_WIDEST, _COLUMN = 100, 26  # columns of a help text, and of the flags in it
_METAVARS = {int: "N", float: "X", bool: "true|false"}

FIRST: dict[str, tuple[str, str, dict[str, dict[str, str]]]] = {  # usage, what it does, and groups of flags
    "train": (
        "nearfar train [DATA] [options]",
        "Pretrain an encoder, evaluate it and write a report. Without arguments: SimCLR on built-in images.",
        {
            "data and results": {
                "--data PATH": "a folder, a table, arrays or built-in data; the same as DATA",
                "--out FOLDER": "the run folder (default: the next free one under runs/)",
                "--config FILE": "a YAML file of settings, or the name of a recipe; flags override it",
                "--resume FOLDER": "continue the run in this folder",
            },
            "method and encoder": {
                "--method NAME": "simclr, moco, byol, ... (default: chosen for the data)",
                "--backbone NAME": "the network: built-in, a timm name, torchvision:NAME or transformers:NAME",
                "--weights NAME": "start weights: a run, timm:NAME, torchvision:NAME, hf:NAME, package:NAME or a file; "
                "none: random",
            },
            "duration and batch": {
                "--time TIME": "how long to train, such as 90s, 20m or 2h",
                "--epochs N": "passes over the data, in place of a time",
                "--batch-size N": "samples of one batch, over all processes",
            },
        },
    ),
    "plan": (
        "nearfar plan [options of nearfar train] [--memory SIZE]",
        "Fit a run into a memory budget. The data are opened and a few samples are run; the rest is computed.",
        {
            "memory": {
                "--memory SIZE": "memory of a process, such as 8GB or 512MiB",
                "--measure": "also run two steps and compare; takes their time and memory",
            },
            "the run": {
                "--data PATH": "a folder, a table, arrays or built-in data",
                "--config FILE": "a YAML file of settings, or the name of a recipe",
                "--method NAME": "simclr, moco, byol, ...",
                "--backbone NAME": "the network: built-in, a timm name, torchvision:NAME or transformers:NAME",
                "--batch-size N": "samples of one batch, over all processes",
                "--image-size N": "side of the images in pixels",
                "--precision NAME": "32, bf16 or fp16",
                "--processes N": "processes on each machine; they share the batch",
            },
        },
    ),
    "evaluate": (
        "nearfar evaluate RUN [options]",
        "Measure an encoder beside its start and cheap baselines, and say whether it is better.",
        {
            "what to measure": {
                "RUN": "a run or export folder, USER/NAME of the hub, timm:NAME, torchvision:NAME, hf:NAME, "
                "open_clip:NAME, package:NAME, a file of weights or a file.onnx",
                "--protocol NAME ...": "how to measure (default: knn linear); listed below",
                "--against NAME ...": "other encoders to compare with, named as RUN",
                "--seeds N": "repeat protocols that draw at random",
            },
            "data": {
                "--data PATH": "labelled data (default: the test part of the run's own data)",
                "--test PATH": "other data to test on (default: the data's own split)",
                "--labels LEVEL": "folders as labels: leaf, top, path, true or false",
            },
            "results": {
                "--out FOLDER": "where to write (default: the run folder, or evaluations/NAME)",
                "--all-metrics": "print every metric, not only the main one of each protocol",
                "--label-errors FOLDER": "also write labels that are probably wrong, and outliers",
            },
        },
    ),
}


def width() -> int:
    return min(_WIDEST, shutil.get_terminal_size().columns)


def first_help(command: str) -> str:
    """The short help of a command."""
    usage, about, groups = FIRST[command]
    if command == "evaluate":
        groups = {**groups, "protocols": _protocols()}
    more = f"nearfar {command} --help-all lists every flag."
    return "\n".join([f"usage: {usage}", "", *_filled(about), *_listed(groups), "", *_filled(more)])


def full_help(command: str, parser: "ArgumentParser", aliases: Mapping[str, str]) -> str:
    """Every flag of a command, in the groups of the settings.

    Args:
        parser: of the command.
        aliases: other names of flags.
    """
    usage, about, _ = FIRST[command]
    groups: dict[str, dict[str, str]] = {}
    for group in parser._action_groups:
        actions = (action for action in group._group_actions if "--help" not in action.option_strings)
        flags = {_flag(action): _text(action) for action in actions if not _is_section(action)}
        if flags:
            groups[{"options": "the run"}.get(group.title or "", group.title or "")] = flags
    if command == "evaluate":
        groups["protocols"] = _protocols()
    other: dict[str, list[str]] = {}
    for name, flag in aliases.items():
        other.setdefault(flag.replace("_", "-"), []).append(name)
    if other:
        groups["other names"] = {", ".join(names): f"the same as {flag}" for flag, names in other.items()}
    return "\n".join([f"usage: {usage}", "", *_filled(about), *_listed(groups)])


def _protocols() -> dict[str, str]:
    from nearfar.evaluation.protocols import PROTOCOLS  # here, since these import torch

    return {
        **{name: protocol.about for name, protocol in PROTOCOLS.items()},
        "all": "all that suit any encoder of such data",
        "MODULE:NAME": "your own; its settings are --protocols.NAME.KEY",
    }


def _is_section(action: Any) -> bool:
    """Whether it takes a whole section of settings, which has flags of its own."""
    return bool(action.metavar == "CONFIG" or type(action).__name__ == "_ActionConfigLoad")


def _flag(action: Any) -> str:
    name: str = action.option_strings[0] if action.option_strings else action.dest.upper()
    if action.nargs == 0 or not action.option_strings:
        return name
    if kinds := _kinds(getattr(action, "_typehint", None)):
        return f"{name} {kinds}"
    return f"{name} {action.metavar or action.dest.rpartition('.')[2].upper()}{' ...' if action.nargs == '+' else ''}"


def _kinds(hint: Any) -> str:
    """The values that a type allows, as short as a help text needs them; empty for a text."""
    if get_origin(hint) is Literal:
        return "|".join(map(str, get_args(hint)))
    if get_origin(hint) is list:
        return f"[{_kinds(get_args(hint)[0]) or 'TEXT'},...]"
    if args := [each for each in get_args(hint) if each is not type(None)]:
        named = [_kinds(each) for each in args] if get_origin(hint) is Union or len(args) == 1 else []
        return "|".join(named) if all(named) else ""
    return _METAVARS.get(hint, "")


def _text(action: Any) -> str:
    text, default = (action.help or "").replace("%%", "%").replace("None: ", "default: "), action.default
    if default in (None, [], {}, "==SUPPRESS==") or "default: " in text or action.nargs == 0:
        return text
    shown = str(default).lower() if isinstance(default, bool) else default
    return f"{text} (default: {' '.join(shown) if isinstance(shown, list) and action.nargs else shown})"


def _filled(text: str) -> list[str]:
    return textwrap.wrap(text, width(), break_on_hyphens=False)


def _listed(groups: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    for title, flags in groups.items():
        yield from ("", *_filled(f"{title}:"))
        for flag, text in flags.items():
            lines = textwrap.wrap(text, width() - _COLUMN, break_on_hyphens=False) or [""]
            if len(flag) + 4 > _COLUMN:
                yield f"  {flag}"
            else:
                yield f"  {flag:<{_COLUMN - 2}}{lines.pop(0)}".rstrip()
            yield from (f"{'':<{_COLUMN}}{line}" for line in lines)
