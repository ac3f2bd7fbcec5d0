"""The parser of the commands without a configuration."""

import argparse
import re
from typing import NoReturn

from nearfar.messages import nearest_by_meaning


class Parser(argparse.ArgumentParser):
    """Prints a wrong argument as one line; the usage is in --help."""

    def error(self, message: str) -> NoReturn:
        line = " ".join(message.split())
        if wrong := re.search(r"unrecognized arguments: --([\w.-]+)", line):
            flags = {a.option_strings[-1].lstrip("-"): a.help or "" for a in self._actions if a.option_strings}
            close = nearest_by_meaning(wrong[1], flags)
            line = re.sub(r"'(\S+?)'", r"--\1", f"there is no --{wrong[1]}{close}")
        self.exit(2, f"{self.prog}: {line}; {self.prog} --help says more\n")
