"""Results that print well: as text in a terminal, as HTML in a notebook."""

import io
from typing import Any

from rich.console import Console

_WIDTH = 100  # columns


class Printed:
    """An object whose `shown` is a rich renderable or a text."""

    def shown(self) -> Any:
        """What a reader sees of it."""
        raise NotImplementedError

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=_WIDTH, record=True, highlight=False)
        console.print(self.shown(), markup=False)
        return console.export_text().rstrip()

    def _repr_html_(self) -> str:
        console = Console(file=io.StringIO(), width=_WIDTH, record=True, highlight=False)
        console.print(self.shown(), markup=False)
        return console.export_html(inline_styles=True, code_format='<pre style="line-height: 1.2">{code}</pre>')
