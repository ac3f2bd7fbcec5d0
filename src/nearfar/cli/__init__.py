"""The command `nearfar`: one file for each sub-command, imported only when it is called."""

import os
import sys
from importlib import import_module

from nearfar import __version__

COMMANDS = {
    "train": "train an encoder on data, evaluate it and write a report",
    "finish": "write the model of a stopped run's newest checkpoint",
    "plan": "fit a run into a memory budget, with its predicted peak",
    "methods": "list the training methods: for which data, when to choose each",
    "recipes": "list known runs and their numbers, or run one again",
    "evaluate": "measure an encoder on data, beside its baselines",
    "report": "write the report of a run again, or compare several runs",
    "embed": "write the vector of every sample of a data set to a file",
    "search": "find the samples most similar to an image, a sound or a text",
    "select": "choose the samples to label next: diverse, typical or uncertain",
    "mine": "find hard negatives for a table of pairs",
    "duplicates": "find near-duplicates in a file of embeddings",
    "explore": "open a web page of a run: map, search, duplicates, training",
    "doctor": "check data before a run: copies, broken files, balance, leaks",
    "shard": "write images as WebDataset tar files, for data beyond one disk",
    "export": "write the encoder as ONNX, torch, timm or Hugging Face",
    "lab": "compare predictions of theory with measurements",
    "info": "print versions, devices and threads, for a bug report",
    "check": "check that losses and gradients are exact on this machine",
}


def main(arguments: list[str] | None = None) -> int:
    """Run `nearfar COMMAND ...`; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--debug"]:
        arguments = [*arguments[1:], "--debug"]
    try:
        status = dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as in `nearfar --help | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return status


def dispatch(arguments: list[str]) -> int:
    match arguments:
        case [] | ["-h" | "--help", *_]:
            print(usage())
            return 0
        case ["-V" | "--version", *_]:
            print(f"nearfar {__version__}")
            return 0
        case ["--completion", *rest]:
            return _completion(rest)
        case ["--complete", *rest]:  # asked by the script of a shell
            from nearfar.cli.completion import complete

            return complete(rest, list(COMMANDS))
        case ["train" | "plan" | "evaluate" as command, *rest] if {"-h", "--help"} & {*rest}:
            from nearfar.cli.help_text import first_help

            print(first_help(command))
            return 0
        case [command, *rest] if command in COMMANDS:
            return run(command, ["--help" if each == "--help-all" else each for each in rest])
        case [command, *_]:
            from nearfar.messages import nearest

            hint = nearest(command, COMMANDS) or "; nearfar --help lists them"
            print(f"nearfar: there is no command {command!r}{hint}", file=sys.stderr)
    return 2


def _completion(rest: list[str]) -> int:
    from nearfar.cli.completion import SHELLS, script

    if rest[:1] and rest[0] in SHELLS and len(rest) == 1:
        print(script(rest[0]), end="")
        return 0
    print(f"nearfar: --completion is {' '.join(rest)!r}, expected one of {', '.join(SHELLS)}", file=sys.stderr)
    return 2


def run(command: str, arguments: list[str]) -> int:
    """Run one command; an error is one line, a traceback only with --debug."""
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        status: int = import_module(f"nearfar.cli.{command}").main(arguments)
    except (BrokenPipeError, SystemExit, GeneratorExit):
        raise
    except KeyboardInterrupt as stop:
        from nearfar.cli.errors import exit_status_of_stop

        return exit_status_of_stop(stop)
    except BaseException as error:  # a panic of a Rust library is no Exception
        if debug:
            raise
        from nearfar.cli.errors import error_line, is_printed_by_rank_zero

        if not is_printed_by_rank_zero(error):
            print(f"nearfar {command}: {error_line(error)}", file=sys.stderr)
        return 1
    return status


def usage() -> str:
    """The top-level help."""
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())
    return (
        "usage: nearfar COMMAND [options]\n\n"
        "Contrastive learning: pull what belongs together near, push the rest far.\n\n"
        f"commands:\n{listed}\n\n"
        "nearfar COMMAND --help shows the options (--help-all: every one); --debug shows\n"
        "tracebacks; nearfar --version; nearfar --completion bash, zsh or fish."
    )
