"""Progress bars and notes on stderr: stdout holds results alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def print_note(line: str) -> None:
    """A line that is never wrapped, so that paths in it can be copied."""
    print_line(Console(stderr=True), line)


def print_line(console: Console, line: str) -> None:
    """Print a line on a console without wrapping or markup, so that paths in it can be copied."""
    console.print(line, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def progress_bar(label: str | bool, total: int, *, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A bar with elapsed and remaining time, removed at the end; gives the function that advances it.

    Args:
        label: text before the bar; True is "embedding", False and "" show no bar.
        total: steps.
        done: steps that were finished before.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    shown = bool(label) and (console.is_terminal or console.is_jupyter)  # elsewhere rich leaves an empty line
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task(label if isinstance(label, str) else "embedding", total=total, completed=done)
        yield lambda count: progress.advance(task, count)


@contextmanager
def stage(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show the stage on a rich console; gives the function that shows the next one."""
    if console.is_terminal:
        with console.status(text) as status:
            yield status.update
        return

    def show(text: str) -> None:
        console.print(f"{text} …", soft_wrap=True, markup=False, highlight=False)

    show(text)
    yield show
