"""How far long work has come, and when it will be done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def say(shown: bool, line: str) -> None:
    """A line beside the bar, which stays one line, so that it can be copied."""
    if shown:
        Console(stderr=True).print(line, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def bar(shown: bool, words: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A progress bar with the time that is left; gives the function that moves it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as progress:
        task = progress.add_task(words, total=total, completed=done)
        yield lambda count: progress.advance(task, count)
