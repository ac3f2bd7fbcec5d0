"""Examples in docstrings, which are there to be run, as blocks of code on the site."""

import re

from griffe import Extension, Object

# Paragraphs that begin with >>>: in Markdown they would be quotations of quotations.
_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def fenced(docstring: str) -> str:
    """
    >>> fenced("One line.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['One line.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    return _EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", docstring)


class Doctests(Extension):
    """Puts fences around the examples of every docstring."""

    def on_object(self, *, obj: Object, **kwargs: object) -> None:
        if obj.docstring is not None and "```" not in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
