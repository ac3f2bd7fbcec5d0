"""What a command is doing: one changing line on a terminal, a line for each stage elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stage(console: Any, text: str) -> Iterator[Callable[[str], None]]:
    """Show the stage on a rich console; gives the function that shows the next one."""
    if console.is_terminal:
        with console.status(text) as status:
            yield status.update
        return

    def show(text: str) -> None:
        console.print(f"{text} …", soft_wrap=True, markup=False, highlight=False)

    show(text)
    yield show
