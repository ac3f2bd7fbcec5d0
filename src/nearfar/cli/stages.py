"""What a command is at, while it works: one changing line on a terminal, a line for each stage elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stage(console: Any, words: str) -> Iterator[Callable[[str], None]]:
    """Says what is being done; gives the function that says what is next.

    Args:
        console: rich's.
    """
    if console.is_terminal:
        with console.status(words) as status:
            yield status.update
        return

    def say(words: str) -> None:
        console.print(f"{words} …", soft_wrap=True, markup=False, highlight=False)

    say(words)
    yield say
