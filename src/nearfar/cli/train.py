"""`nearfar train`: from data to a trained encoder, evaluated, with a report."""

import sys
from pathlib import Path

from jsonargparse import ArgumentError as BadArgument
from jsonargparse import ArgumentParser, Namespace

from nearfar.cli.flags import describe
from nearfar.config import TrainConfig, build, completed, read_yaml
from nearfar.messages import nearest_or_all

SHORT = {"--batch": "--batch-size", "--group": "--sources.groups"}


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(
        prog="nearfar train",
        description="Pretrain an encoder, evaluate it and write a report. Without arguments: SimCLR on glyphs. "
        "--group FILE is short for --sources.groups.",
        exit_on_error=False,
        default_env=False,
    )
    parser.add_argument(
        "--config", action="config", help="YAML with any of the keys below, or the name of a recipe; flags override it"
    )
    parser.add_argument("--out", type=str | None, help="the run folder (default: the next free one under runs/)")
    parser.add_argument("--resume", type=str | None, help="go on with the run in this folder")
    parser.add_class_arguments(TrainConfig, as_group=False)
    describe(parser, TrainConfig)
    known = {action.dest for action in parser._actions}
    named = [name for name in config_names(arguments) if not Path(name).exists()]
    arguments = with_recipes(arguments)
    try:
        for path in config_files(arguments):
            read_yaml(path)  # what would take all memory is refused before anyone else reads it
        options = parser.parse_args([underscored(a) for a in arguments], defaults=False)
    except BadArgument as error:
        print(f"nearfar train: {explained(str(error), known)}", file=sys.stderr)
        return 2

    from rich.console import Console

    from nearfar.report.refresh import verdict_of
    from nearfar.training.processes import is_rank_zero
    from nearfar.training.resume import MAY_CHANGE
    from nearfar.training.train import free_folder, resume_run, run

    console = Console()
    if options.get("resume") is not None:
        if other := sorted(set(options.as_dict()) - {"resume", *MAY_CHANGE}):
            print(
                f"nearfar train: --resume goes on with the run's own settings, so --{other[0]} has no place; "
                "--epochs, --processes, --nodes and --strategy may be others",
                file=sys.stderr,
            )
            return 2
        changed = {name: options.get(name) for name in MAY_CHANGE}
        resume_run(Path(options.resume), console=console, **changed)
        folder = Path(options.resume)
    else:
        config = configured(options)
        check_recipe_data(named, config)
        folder = free_folder(config) if options.get("out") is None else Path(options.out)
        run(config, folder, console=console)
    if is_rank_zero():
        if (verdict := verdict_of(folder)) is not None:
            console.print(verdict, soft_wrap=True, markup=False, highlight=False)
        console.print(f"run: {folder}", soft_wrap=True, markup=False, highlight=False)
    return 0


def config_names(arguments: list[str]) -> list[str]:
    """What --config names, in either way of writing it."""
    pairs = zip(["", *arguments], arguments, strict=False)
    return [
        now if before == "--config" else now.removeprefix("--config=")
        for before, now in pairs
        if before == "--config" or now.startswith("--config=")
    ]


def config_files(arguments: list[str]) -> list[Path]:
    """The files among them."""
    return [path for path in map(Path, config_names(arguments)) if path.is_file()]


def check_recipe_data(names: list[str], config: TrainConfig) -> None:
    """Say which data a recipe lacks, and how to give others."""
    from nearfar.recipes import recipe

    for each in map(recipe, names):
        if each.needs and config.data.startswith(f"{each.needs}/") and not Path(config.data).exists():
            raise FileNotFoundError(
                f"the recipe {each.name} needs a folder {each.needs}/ here, with {config.data}; give yours with --data"
            )


def with_recipes(arguments: list[str]) -> list[str]:
    """The same, configurations first, and the file of a recipe where --config has its name.

    A file of that name is the file.
    """
    from nearfar.recipes import recipe

    def place(name: str) -> str:
        if not name or Path(name).exists():
            return name
        if Path(name).name != name or Path(name).suffix in (".yaml", ".yml"):
            raise FileNotFoundError(f"--config is {name!r}, expected a file that is there, or the name of a recipe")
        return str(recipe(name).path)

    arguments = configs_first(arguments)
    found = list(arguments)
    for i, (before, now) in enumerate(zip(["", *arguments], arguments, strict=False)):
        if before == "--config":
            found[i] = place(now)
        elif now.startswith("--config="):
            found[i] = "--config=" + place(now.removeprefix("--config="))
    return found


def configs_first(arguments: list[str]) -> list[str]:
    """The same words, every --config before the flags: the parser lets what comes later win, and flags override files.

    >>> configs_first(["--epochs", "1", "--config", "a.yaml", "--seed=3", "--config=b.yaml"])
    ['--config', 'a.yaml', '--config=b.yaml', '--epochs', '1', '--seed=3']
    """
    first: list[str] = []
    rest: list[str] = []
    value_follows = False
    for argument in arguments:
        named = argument == "--config"
        (first if value_follows or named or argument.startswith("--config=") else rest).append(argument)
        value_follows = named and not value_follows
    return [*first, *rest]


def configured(options: Namespace) -> TrainConfig:
    values = options.clone()
    for name in ("config", "out", "resume"):
        values.pop(name, None)
    config: TrainConfig = build(TrainConfig, completed(values.as_dict()), "train")
    return config


def underscored(argument: str) -> str:
    """--batch-size as --batch_size, short names in full; values stay as they are."""
    name, equals, value = argument.partition("=")
    name = SHORT.get(name, name)
    return name.replace("-", "_").replace("__", "--", 1) + equals + value if argument.startswith("--") else argument


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


def explained(message: str, known: set[str]) -> str:
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
        return f"there is no key {found[1]!r}{nearest_or_all(found[1], known)}"
    return line
