"""`nearfar train`: from data to a trained encoder, evaluated, with a report."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError as BadArgument
from jsonargparse import ArgumentParser, Namespace

from nearfar.cli.flags import check_sections, describe, main_flags, show_dashes
from nearfar.cli.help_text import full_help
from nearfar.config import TrainConfig, completed
from nearfar.data.names import check_there
from nearfar.settings import build, checked_values, overlaid, sections, unknown_key, with_sections
from nearfar.yaml_reader import read_yaml

SHORT = {
    "--batch": "--batch-size",
    "--group": "--data.groups_file",
    "--image.weights": "--weights",
    "--views.colour": "--views.color",
    "--lr": "--optimizer.lr",
    "--learning-rate": "--optimizer.lr",
    "--weight-decay": "--optimizer.weight_decay",
    "--temperature": "--options.temperature",
    "--momentum": "--options.momentum",
    "--workers": "--data.workers",
    "--num-workers": "--data.workers",
    "--labels": "--data.labels",
    "--test": "--data.test",
    "--model": "--backbone",
    "--arch": "--backbone",
    "--img-size": "--image-size",
    "--size": "--image-size",
    "--output": "--out",
    **main_flags(TrainConfig),
}
CONFIG_HELP = "YAML with any of the keys below, or the name of a recipe; flags override it"


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(
        prog="nearfar train",
        exit_on_error=False,
        default_env=False,
    )
    parser.add_argument("--config", type=str | None, help=CONFIG_HELP)
    parser.add_argument("--out", type=str | None, help="the run folder (default: the next free one under runs/)")
    parser.add_argument("--resume", type=str | None, help="continue the run in this folder")
    parser.add_argument("--all_metrics", action="store_true", help="print every metric at the end")
    parser.add_class_arguments(TrainConfig, as_group=False)
    describe(parser, TrainConfig)
    show_dashes(parser)
    if {"-h", "--help"} & {*arguments}:
        print(full_help("train", parser, SHORT))
        return 0
    known = {action.dest: action.help or "" for action in parser._actions}
    known |= {alias.removeprefix("--"): "" for alias in SHORT}
    names, arguments = take_configs(positional_data(arguments))
    files = [config_file(name) for name in names]
    arguments = full_flags(arguments, SHORT)
    check_sections(arguments, sections(TrainConfig))
    try:
        options = parser.parse_args(arguments, defaults=False)
    except BadArgument as error:
        print(f"nearfar train: {explained(str(error), known)}", file=sys.stderr)
        return 2

    check_there(configured_data(files, options), options.get("method"), options.get("modality"))

    from rich.console import Console

    from nearfar.training.resume import MAY_CHANGE
    from nearfar.training.train import free_folder, resume_run, run

    console, every = Console(), bool(options.pop("all_metrics", False))
    if options.get("resume") is not None:
        fixed = {*options.as_dict(), *(["config"] if names else [])} - {"resume", "all_metrics", *MAY_CHANGE}
        if other := sorted(fixed):
            allowed = ", ".join(f"--{name}" for name in MAY_CHANGE)
            print(
                f"nearfar train: --{other[0].replace('_', '-')} was given with --resume, which continues with the "
                f"run's own settings: leave it out; only {allowed} may change",
                file=sys.stderr,
            )
            return 2
        changed = {name: options.get(name) for name in MAY_CHANGE}
        resume_run(Path(options.resume), console=console, all_metrics=every, **changed)
    else:
        config = configured(files, options)
        check_recipe_data([name for name in names if not Path(name).exists()], config)
        folder = free_folder(config) if options.get("out") is None else Path(options.out)
        run(config, folder, console=console, all_metrics=every)
    return 0


def positional_data(arguments: list[str]) -> list[str]:
    """`nearfar train photos/` as `nearfar train --data photos/`; the data may also follow the flags.

    >>> positional_data(["photos/", "--epochs", "3"]), positional_data(["--epochs", "3", "photos/"])
    (['--data', 'photos/', '--epochs', '3'], ['--epochs', '3', '--data', 'photos/'])
    """
    values = [not each.startswith("-") for each in arguments]
    if values[:1] == [True]:
        return ["--data", *arguments]
    if values[-3:] == [False, True, True] and "=" not in arguments[-3]:  # a flag, its value, and one more
        return [*arguments[:-1], "--data", arguments[-1]]
    return arguments


def configured_data(files: list[Path], options: Namespace) -> str | None:
    """The data that flags name, or else the last file that does; None where that is left to a default or a run."""
    if options.get("resume") is not None:
        return None
    if (flag := options.get("data.path")) is not None:
        return str(flag)
    if any(path.parent.name == "recipes" for path in files):  # says itself what its data lack
        return None
    named = (with_sections(TrainConfig, read_yaml(path) or {}).get("data") for path in files)
    paths = [each["path"] for each in named if isinstance(each, dict) and isinstance(each.get("path"), str)]
    return paths[-1] if paths else None


def check_recipe_data(names: list[str], config: TrainConfig) -> None:
    """Say which data a recipe lacks, and how to give others."""
    from nearfar.recipes import recipe

    for each in map(recipe, names):
        path = config.data.path
        if each.needs and path.startswith(f"{each.needs}/") and not Path(path).exists():
            raise FileNotFoundError(
                f"the recipe {each.name} needs a folder {each.needs}/ here, with {path}; give yours with --data"
            )


def take_configs(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What each --config names, and the other arguments.

    >>> take_configs(["--epochs", "1", "--config", "a.yaml", "--seed=3", "--config=b.yaml"])
    (['a.yaml', 'b.yaml'], ['--epochs', '1', '--seed=3'])
    """
    named: list[str] = []
    rest: list[str] = []
    value_follows = False
    for argument in arguments:
        if value_follows or argument.startswith("--config="):
            named.append(argument.removeprefix("" if value_follows else "--config="))
        elif argument != "--config":
            rest.append(argument)
        value_follows = argument == "--config" and not value_follows
    if value_follows:
        raise ValueError("--config names nothing, expected a file or the name of a recipe")
    return named, rest


def config_file(name: str) -> Path:
    """The file that --config names; a recipe's, if there is no file of that name."""
    from nearfar.recipes import recipe

    path = Path(name)
    if path.exists():
        return path
    if path.name != name or path.suffix in (".yaml", ".yml"):
        raise FileNotFoundError(f"--config is {name!r}, expected a file that is there, or the name of a recipe")
    return recipe(name).path


def configured(files: list[Path], options: Namespace) -> TrainConfig:
    """The configuration of a run: files in their order, then flags, then what is left to the defaults."""
    values: dict[str, Any] = {}
    for path in files:
        values = overlaid(values, checked_values(TrainConfig, read_yaml(path), str(path)))
    flags = options.clone()
    for name in ("config", "out", "resume"):
        flags.pop(name, None)
    config: TrainConfig = build(TrainConfig, completed(overlaid(values, flags.as_dict())), "train")
    return config


def full_flags(arguments: list[str], short: Mapping[str, str]) -> list[str]:
    """Flags as the parser knows them: --batch-size as --batch_size, short names in full; values stay as they are.

    >>> full_flags(["--data", "photos/", "--data.label-column=kind"], {"--data": "--data.path"})
    ['--data.path', 'photos/', '--data.label_column=kind']
    """

    def full(argument: str) -> str:
        name, equals, value = argument.partition("=")
        name = short.get(name, name)
        return name.replace("-", "_").replace("__", "--", 1) + equals + value if argument.startswith("--") else argument

    return list(map(full, arguments))


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list",
    "dict": "keys and values",
    "NoneType": "null",
}


def _wrong_kind(key: str, message: str) -> str:
    """Value and expectation in the words of `config.build`, from the parser's.

    >>> _wrong_kind("epochs", "Expected a <class 'int'>. Got value: two")
    "--epochs is 'two', expected a whole number"
    >>> _wrong_kind("precision", "Expected a typing.Literal['32', 'bf16']. Got value: 8")
    "--precision is '8', expected '32' or 'bf16'"
    """
    import re

    value = re.split(r"G(?:ot|iven) value: ", message)[-1]
    kinds = [
        _KINDS.get(plain, plain) or choices.replace(", ", " or ")
        for plain, choices in re.findall(r"Expected a (?:<class '(\w+)'>|typing\.Literal\[(.+?)\])", message)
    ]
    return f"--{key} is {value!r}, expected {' or '.join(kinds)}"


def explained(message: str, known: Mapping[str, str]) -> str:
    """jsonargparse's message in one line, with the nearest known key where a key is not known."""
    import re

    line = " ".join(message.split())
    if found := re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", line):
        line = f"Key '{found[1]}.{found[2]}'"
    elif found := re.search(r"Option '([\w.]+)' is not accepted", line):
        line = f"Key '{found[1]}'"
    if (found := re.match(r'Parser key "([\w.]+)": (.*)', line)) and "Expected a" in line:
        return _wrong_kind(found[1].replace("_", "-"), found[2])
    if found := re.search(r"(?:Unrecognized arguments: --|Key ['\"]|unrecognized arguments: --)([\w.]+)", line):
        return unknown_key(found[1], known, known)
    return line
