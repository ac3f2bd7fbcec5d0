"""HTML parts of the pages. Text from outside passes through `escape`, here or in the caller."""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from nearfar.report.next_step import NextStep

# With this policy the browser refuses every request to another address.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
# Runs before the page is painted: the theme that was chosen last time.
_STORED_THEME = (
    'try { const t = localStorage.getItem("nearfar-theme"); '
    'if (t === "light" || t === "dark") document.documentElement.dataset.theme = t; } catch (e) {}'
)


class Charts:
    """The charts of a page in their order: each is a drawing, and data for the script."""

    def __init__(self) -> None:
        self.data: list[Mapping[str, Any]] = []

    def place(self, drawing: str, data: Mapping[str, Any], kind: str = "") -> str:
        """A drawing that the script finds by its number."""
        self.data.append(data)
        return f'<div class="chart {kind}" id="chart-{len(self.data) - 1}">{drawing}</div>'

    def figure(self, title: str, drawing: str, data: Mapping[str, Any], caption: str) -> str:
        """A chart with title and caption; the caption says what the chart shows."""
        place = self.place(drawing, data)
        return f"<figure><h3>{escape(title)}</h3>{place}<figcaption>{escape(caption)}</figcaption></figure>"

    def scripts(self) -> str:
        """The data of all charts, and the scripts that use them."""
        if not self.data:
            return f"<script>\n{resource('theme.js')}</script>\n"
        text = json.dumps(self.data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")  # ends no element
        script = f"{resource('theme.js')}{resource('page.js')}{resource('map.js')}"
        return f'<script type="application/json" id="chart-data">{text}</script>\n<script>\n{script}</script>\n'


def document(title: str, header: str, sections: Mapping[str, str], charts: Charts, style: str = "") -> str:
    """The whole page.

    Args:
        title: plain text.
        header: markup below the title.
        sections: markup by title; empty ones are left out.
        charts: those of the sections.
        style: more CSS rules.
    """
    shown = {name: content for name, content in sections.items() if content}
    anchors = {name: re.sub(r"\W+", "-", name.lower()).strip("-") for name in shown}
    links = "".join(f'<a href="#{anchors[name]}">{escape(name)}</a>' for name in shown)
    body = "".join(
        f'<section id="{anchors[name]}" aria-labelledby="{anchors[name]}-title">'
        f'<h2 id="{anchors[name]}-title">{escape(name)}</h2>{content}</section>'
        for name, content in shown.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · nearfar</title>\n<style>\n{resource('page.css')}{style}</style>\n"
        f"<script>{_STORED_THEME}</script>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f'<header><div class="title"><h1>{escape(title)}</h1>'
        f'<button id="theme" type="button" hidden>Dark</button></div>{header}</header>\n'
        f'<nav aria-label="Sections">{links}</nav>\n<main id="main" tabindex="-1">{body}</main>\n'
        f"{charts.scripts()}</body>\n</html>\n"
    )


def verdict_block(
    level: str,
    sentences: Sequence[str],
    scores: str = "",
    folded: Sequence[str] = (),
    step: NextStep | None = None,
    name: str | None = None,
) -> str:
    """The verdict on a run.

    Args:
        level: of the run, which colors the first sentence.
        sentences: the verdict first.
        scores: markup of the numbers.
        folded: sentences for those who want all of it.
        step: what to try next.
        name: of the run, where there are several.
    """
    verdict, *others = map(escape, sentences)
    first = f'<p class="level {level}">{verdict}</p>'
    if name is not None:
        first = f'<p><strong>{escape(name)}</strong> <span class="level {level}">{verdict}</span></p>'
    content = first + scores + "".join(f"<p>{each}</p>" for each in others)
    if step is not None:
        content += f"<p>Try next: {escape(step.reason)}</p>"
        content += f'<pre class="command" tabindex="0" aria-label="command">{escape(step.command)}</pre>'
    content += details("In words", "".join(f"<p>{escape(each)}</p>" for each in folded))
    return f'<div class="verdict {level}">{content}</div>'


def table(titles: Sequence[str], rows: Iterable[str], label: str, numbers: Sequence[str] = ()) -> str:
    """A table that scrolls where the window is too narrow.

    Args:
        titles: of the columns; none leaves out the head.
        rows: as `table_row` makes them.
        label: for screen readers.
        numbers: titles of columns that hold numbers.
    """
    classes = [' class="number"' if title in numbers else "" for title in titles]
    columns = "".join(f'<th scope="col"{c}>{escape(t)}</th>' for t, c in zip(titles, classes, strict=True))
    head = f"<thead><tr>{columns}</tr></thead>" if titles else ""
    content = f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{content}</div>'


def table_row(heading: str, cells: Iterable[str], kind: str = "") -> str:
    """A row with a heading and plain text cells, all of one CSS class."""
    style = f' class="{kind}"' if kind else ""
    return f'<tr><th scope="row">{escape(heading)}</th>{"".join(f"<td{style}>{escape(c)}</td>" for c in cells)}</tr>'


def sentence(text: str) -> str:
    return f'<p class="quiet">{escape(text)}</p>'


def details(summary: str, content: str, *, opened: bool = False) -> str:
    """A folded part; empty where there is no content."""
    attribute = " open" if opened else ""
    return f"<details{attribute}><summary>{escape(summary)}</summary>{content}</details>" if content else ""


def data_address(content: bytes) -> str:
    """An image as a data: address."""
    kind = "png" if content.startswith(b"\x89PNG") else "webp" if content[8:12] == b"WEBP" else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def resource(name: str) -> str:
    """The text of a file of this package."""
    return files("nearfar.report").joinpath(name).read_text(encoding="utf-8")
