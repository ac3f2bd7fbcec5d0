"""Shell completion: a script for bash, zsh or fish that asks the command what may come next. Needs no torch."""

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Sequence

SHELLS = ("bash", "zsh", "fish")

BASH = """_nearfar() {
  local IFS=$'\\n'
  COMPREPLY=($(nearfar --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _nearfar nearfar
"""
ZSH = """#compdef nearfar
_nearfar() {
  local -a found
  found=("${(@f)$(nearfar --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  found=(${found:#})
  if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _nearfar nearfar
"""
FISH = """function __nearfar_complete
  set -l words (commandline -opc) (commandline -ct)
  nearfar --complete $words[2..-1] 2>/dev/null
end
complete -c nearfar -a '(__nearfar_complete)'
"""
SCRIPTS = dict(zip(SHELLS, (BASH, ZSH, FISH), strict=True))


def script(shell: str) -> str:
    """What `nearfar --completion SHELL` prints."""
    return SCRIPTS[shell]


def candidates(words: Sequence[str], commands: Sequence[str]) -> list[str]:
    """What may stand in place of the last word: a command, or one of its flags; nothing where a file may.

    Args:
        words: after `nearfar`, the last as far as it is typed.
        commands: all of them.

    >>> candidates(["sea"], ["search", "train"])
    ['search']
    """
    typed = words[-1] if words else ""
    if len(words) < 2:
        known = [*commands, "--help", "--version", "--completion"]
    elif words[0] == "--completion":
        known = list(SHELLS)
    elif words[0] in commands and typed.startswith("-"):
        known = flags(words[0])
    else:
        return []
    return sorted(word for word in known if word.startswith(typed))


def flags(command: str) -> list[str]:
    """The flags that the help of a command names."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        importlib.import_module(f"nearfar.cli.{command}").main(["--help"])
    found = re.findall(r"(?<![\w-])--[a-z][\w.-]*[a-z0-9]", text.getvalue())
    return sorted({*found, "--help", "--debug"})


def complete(words: Sequence[str], commands: Sequence[str]) -> int:
    """Print the candidates, a line each."""
    sys.stdout.write("".join(f"{word}\n" for word in candidates(words, commands)))
    return 0
