"""A process that is asked for one thing at a time, and answers in JSON."""

import json
import subprocess
import sys
from typing import Any


class Worker:
    """A script of this folder with `--serve` and these arguments; it reads an order from each line."""

    def __init__(self, script: str, *arguments: object) -> None:
        command = [sys.executable, "-W", "ignore", script, "--serve", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, order: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
