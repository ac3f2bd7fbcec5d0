"""Results that print well: as text in a terminal, as HTML in a notebook."""

import io
from html import escape
from typing import Any

from rich.console import Console

_WIDTH = 100  # columns


class Printed:
    """An object whose `shown` is a rich renderable or a text."""

    def shown(self) -> Any:
        """What a reader sees of it."""
        raise NotImplementedError

    def __str__(self) -> str:
        content = self.shown()
        if isinstance(content, str):
            return content
        console = Console(file=io.StringIO(), width=_WIDTH, record=True, highlight=False)
        console.print(content, markup=False)
        return console.export_text().rstrip()

    def _repr_html_(self) -> str:
        content = self.shown()
        if isinstance(content, str):
            return f'<pre style="line-height: 1.2; white-space: pre-wrap">{escape(content)}</pre>'
        console = Console(file=io.StringIO(), width=_WIDTH, record=True, highlight=False)
        console.print(content, markup=False)
        return console.export_html(inline_styles=True, code_format='<pre style="line-height: 1.2">{code}</pre>')
