"""The command `nearfar`: one file for each sub-command, imported only when it is called."""

import os
import sys
from importlib import import_module

from nearfar import __version__

COMMANDS = {
    "train": "from data to a trained encoder, evaluated, with a report",
    "plan": "micro-batch and accumulation for a memory budget, and what the run will take of it",
    "recipes": "runs that are known: what each reached, and one of them run again",
    "evaluate": "how good is an encoder, on what, and compared with what?",
    "report": "the page of a run written anew, or several runs side by side",
    "embed": "every image of a data set as a vector, in a file",
    "search": "the images most like one, with a contact sheet",
    "duplicates": "near-duplicate groups in a file of embeddings",
    "explore": "a web page of a run: map, search, neighbours, duplicates, and the run as it trains",
    "doctor": "duplicates, broken files, sizes, balance and leaks of a data set, before a run",
    "shard": "images as WebDataset's tar files, for data beyond one disk",
    "export": "the encoder for other programs: ONNX, torch, timm, Hugging Face",
    "lab": "the mathematics run: what theory predicts beside what is measured",
    "check": "is the machine right, and are loss and gradient exact here?",
}


def main(arguments: list[str] | None = None) -> int:
    """Run `nearfar COMMAND ...`; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--debug"]:
        arguments = [*arguments[1:], "--debug"]
    try:
        status = dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as in `nearfar --help | head -1`
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
        case [command, *rest] if command in COMMANDS:
            return run(command, rest)
        case [command, *_]:
            print(f"nearfar: there is no command {command!r}; {nearest(command)}", file=sys.stderr)
    return 2


def run(command: str, arguments: list[str]) -> int:
    """Run one command; what a user can mend is one line, a traceback only with --debug."""
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        status: int = import_module(f"nearfar.cli.{command}").main(arguments)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        print("nearfar: interrupted", file=sys.stderr)
        return 130
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of a Rust library is no Exception
        if debug:
            raise
        from nearfar.cli.faults import in_a_line

        print(f"nearfar {command}: {in_a_line(error)}", file=sys.stderr)
        return 1
    return status


def usage() -> str:
    """The top-level help."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: nearfar COMMAND [options]",
            "",
            "Contrastive representation learning: pull what belongs together near, push the rest far.",
            "",
            "commands:",
            *lines,
            "",
            "nearfar COMMAND --help says more; --debug shows a traceback where something fails.",
        ]
    )


def nearest(command: str) -> str:
    """A hint at the command that was meant."""
    from difflib import get_close_matches

    close = get_close_matches(command, COMMANDS, n=1)
    return f"did you mean {close[0]!r}?" if close else "nearfar --help lists them"
