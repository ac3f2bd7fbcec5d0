"""The parser of the commands without a configuration."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Prints a wrong argument as one line; the usage is in --help."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; {self.prog} --help says more\n")
