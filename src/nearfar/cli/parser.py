"""The parser of the commands without a configuration."""

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from nearfar.messages import nearest_by_meaning


class Parser(argparse.ArgumentParser):
    """Prints a wrong argument as one line; the usage is in --help."""

    typed: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.typed = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        line = " ".join(message.split())
        wrong = re.search(r"unrecognized arguments: --([\w.-]+)", line)
        name = wrong[1] if wrong else self._unknown_flag() if "required" in line else None
        if name is not None:
            flags = {a.option_strings[-1].lstrip("-"): a.help or "" for a in self._actions if a.option_strings}
            line = re.sub(r"'(\S+?)'", r"--\1", f"there is no --{name}{nearest_by_meaning(name, flags)}")
            line = re.sub(r"--(\w)\b(?!-)", r"-\1", line)
        self.exit(2, f"{self.prog}: {line}; {self.prog} --help says more\n")

    def _unknown_flag(self) -> str | None:
        """A misspelled flag is told before what is missing, perhaps because of it."""
        flags = [each.partition("=")[0] for each in self.typed if re.match(r"--\w", each)]
        known = list(self._option_string_actions)
        return next((flag[2:] for flag in flags if not any(each.startswith(flag) for each in known)), None)
