"""The parser of the commands that have no configuration."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A mistake is one line, as it is of `nearfar train`; the usage is in --help."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; {self.prog} --help says more\n")
