"""The pieces that pages are made of. Text that comes from outside passes through `escape` here or by its caller."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

# The browser itself then refuses every request to anywhere.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
_SWITCH = '<button id="theme" type="button" hidden>Dark</button>'
# Before anything is painted: the colours that were chosen the last time.
_CHOSEN = (
    'try { const t = localStorage.getItem("nearfar-theme"); '
    'if (t === "light" || t === "dark") document.documentElement.dataset.theme = t; } catch (e) {}'
)


class Charts:
    """Charts in the order of the page: each is a drawing in the text, and data for what moves in it."""

    def __init__(self) -> None:
        self.data: list[Mapping[str, Any]] = []

    def place(self, drawing: str, data: Mapping[str, Any], kind: str = "") -> str:
        """A drawing that the script knows by its number; its caption says the same to who does not see it."""
        self.data.append(data)
        return f'<div class="chart {kind}" id="chart-{len(self.data) - 1}">{drawing}</div>'

    def figure(self, title: str, drawing: str, data: Mapping[str, Any], caption: str) -> str:
        """A chart with its title and a caption."""
        place = self.place(drawing, data)
        return f"<figure><h3>{escape(title)}</h3>{place}<figcaption>{escape(caption)}</figcaption></figure>"

    def scripts(self) -> str:
        """The data, and the script that answers to pointer and keys."""
        if not self.data:
            return f"<script>\n{resource('theme.js')}</script>\n"
        script = f"{resource('theme.js')}{resource('page.js')}{resource('map.js')}"
        return f"{json_script('chart-data', self.data)}<script>\n{script}</script>\n"


def document(title: str, header: str, sections: Mapping[str, str], charts: Charts, style: str = "") -> str:
    """The whole page.

    Args:
        title: plain text.
        header: markup below the title.
        sections: markup by title, in their order; those without any are left out.
        charts: what they have placed.
        style: further rules.
    """
    shown = {name: content for name, content in sections.items() if content}
    links = "".join(f'<a href="#{anchor(name)}">{escape(name)}</a>' for name in shown)
    body = "".join(
        f'<section id="{anchor(name)}" aria-labelledby="{anchor(name)}-title">'
        f'<h2 id="{anchor(name)}-title">{escape(name)}</h2>{content}</section>'
        for name, content in shown.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · nearfar</title>\n<style>\n{resource('page.css')}{style}</style>\n"
        f"<script>{_CHOSEN}</script>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f'<header><div class="title"><h1>{escape(title)}</h1>{_SWITCH}</div>{header}</header>\n'
        f'<nav aria-label="Sections">{links}</nav>\n<main id="main" tabindex="-1">{body}</main>\n'
        f"{charts.scripts()}</body>\n</html>\n"
    )


def table(titles: Sequence[str], rows: Iterable[str], label: str, numbers: Sequence[str] = ()) -> str:
    """A table that scrolls by itself where the window is too narrow; rows are markup."""
    head = "".join(f'<th scope="col"{number_class(title in numbers)}>{escape(title)}</th>' for title in titles)
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return scrolling(whole, label)


def scrolling(content: str, label: str) -> str:
    """Markup in a region of its own that can be reached and moved by keys."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{content}</div>'


def sentence(text: str) -> str:
    return f'<p class="quiet">{escape(text)}</p>'


def details(summary: str, content: str, *, opened: bool = False) -> str:
    """Something to be unfolded; nothing where there is nothing in it."""
    attribute = " open" if opened else ""
    return f"<details{attribute}><summary>{escape(summary)}</summary>{content}</details>" if content else ""


def json_script(name: str, content: object) -> str:
    """Data for a script, in which no text can end the element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def data_address(content: bytes) -> str:
    """A picture as its own address."""
    kind = "png" if content.startswith(b"\x89PNG") else "webp" if content[8:12] == b"WEBP" else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def number_class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def anchor(title: str) -> str:
    """
    >>> anchor("Nearest neighbours")
    'nearest-neighbours'
    """
    return title.lower().replace(" ", "-")


def resource(name: str) -> str:
    """A file of this package."""
    return files("nearfar.report").joinpath(name).read_text(encoding="utf-8")
