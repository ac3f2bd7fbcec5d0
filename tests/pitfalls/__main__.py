"""`python -m tests.pitfalls [NAME ...] [--write]`: measure the damage of each pitfall, and write it into the page."""

import argparse
import importlib
import re
import time

import torch

from tests.pitfalls.page import PAGE, pitfalls, written


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.pitfalls", description="Measure what each pitfall does.")
    parser.add_argument("names", nargs="*", help="of tests, without test_; all if none is given")
    parser.add_argument("--write", action="store_true", help="put the numbers into docs/pitfalls.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, pitfall in pitfalls().items():
        if options.names and name not in options.names:
            continue
        start = time.perf_counter()
        test = importlib.import_module(f"tests.pitfalls.test_{name}")
        found = written(test.damage(), getattr(test, "WITHIN", {}))
        print(f"{pitfall.title}  [{time.perf_counter() - start:.1f} s]\n{found}")
        if options.write:
            text = PAGE.read_text(encoding="utf-8")
            new = re.sub(r"```text\n.*?```", lambda _, f=found: f"```text\n{f}```", pitfall.words, flags=re.DOTALL)
            PAGE.write_text(text.replace(pitfall.words, new), encoding="utf-8")


if __name__ == "__main__":
    main()
