"""The offline page: everything it shows is inside it, and it asks nothing of any server."""

import base64
import io
import json
import platform
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nearfar.evaluate.neighbours import Neighbours
from nearfar.evaluate.results import Results, Row, interval, percent, shown, write_atomically
from nearfar.report import words
from nearfar.report.curves import Chart, curves
from nearfar.report.run import Figure, Run, Verdict, read_run

# The browser itself then refuses every request to anywhere. Plotly builds functions and styles from text.
_POLICY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "base-uri 'none'; form-action 'none'"
)


def write_report(folder: Path | str) -> Path:
    """Write `report.html` into a run folder from what is there, and return its path.

    Reads `config.yaml`, `metrics.jsonl`, `verdicts.json`, `evaluation.json` and the curves behind its rows in
    `evaluation/`, `views.png`, `neighbours.npz` (as `Neighbours.save` writes it) and `environment.json`; whatever is
    absent or broken becomes a sentence.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder, expected the folder of a run")
    return write_atomically(folder / "report.html", render(read_run(folder)))


def render(run: Run) -> str:
    """The page as text."""
    charts = curves(run.metrics)
    sections = {
        "Evaluation": _evaluation(run.results) + _figures(run.figures),
        "Curves": _curves(charts),
        "Health": _health(run.verdicts),
        "Views": _views(run.views),
        "Nearest neighbours": _neighbours(run.neighbours),
        "Configuration": _configuration(run.config_text),
        "Environment": _environment(run.environment),
    }
    links = "".join(f'<a href="#{_anchor(title)}">{title}</a>' for title in sections)
    body = "".join(
        f'<section id="{_anchor(title)}"><h2>{title}</h2>{content}</section>' for title, content in sections.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(run.name)} · nearfar</title>\n<style>\n{_file('page.css')}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f"<header><h1>{escape(run.name)}</h1>{_verdict(run)}</header>\n"
        f'<nav aria-label="Sections">{links}</nav>\n<main id="main">{body}</main>\n{_scripts(charts)}</body>\n</html>\n'
    )


def _verdict(run: Run) -> str:
    level, health = words.health(run.verdicts)
    sentences = [words.training(run)]
    if run.results is not None:
        sentences += words.comparisons(list(run.results.rows))
    sentences += run.problems
    paragraphs = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return f'<div class="verdict {level}"><p class="level {level}">{escape(health)}</p>{paragraphs}</div>'


def _evaluation(results: Results | None) -> str:
    if results is None:
        return _sentence("This run has not been evaluated: there is no readable evaluation.json.")
    notes = "".join(_sentence(note) for note in results.notes)
    if not results.rows:
        return notes or _sentence("The evaluation holds no results.")
    first = [row for row in results.rows if words.is_headline(row)]
    table = _table(results, first, "Evaluation table")
    if len(first) < len(results.rows):
        every = _table(results, results.rows, "All metrics")
        table += f"<details><summary>All metrics</summary>{every}</details>"
    return f"{table}{notes}"


def _figures(figures: list[Figure]) -> str:
    """Those of the trained encoder to be seen at once, those of the others on demand; then a table of its classes."""
    own = [figure for figure in figures if figure.row.encoder == "trained"]
    pictures = "".join(_drawn(figure) for figure in own)
    others = "".join(_drawn(figure) for figure in figures if figure.row.encoder != "trained")
    if others:
        pictures += f"<details><summary>Figures of the other encoders</summary>{others}</details>"
    tables = "".join(
        f"<details><summary>Each class: {escape(_about(figure.row))}</summary>{_per_class(figure)}</details>"
        for figure in own or figures
        if figure.classes
    )
    return pictures + tables


def _about(row: Row) -> str:
    return f"{row.encoder}, {row.protocol}, {row.data} {row.split}"


def _drawn(figure: Figure) -> str:
    if figure.picture is None:
        return ""
    words = escape(_about(figure.row))
    image = f'<img class="drawn" alt="Curves of {words}" src="{_data(figure.picture)}">'
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>"


def _per_class(figure: Figure) -> str:
    titles = ("class", "n", "precision", "recall", "F1")
    head = "".join(f'<th scope="col"{_number(title != "class")}>{title}</th>' for title in titles)
    rows = ""
    for name, n, *values in zip(*figure.classes.values(), strict=True):
        known = int(n) > 0  # of a class without test images nothing is known
        cells = [f"{int(n):,}", *(percent(float(value)) if known else "" for value in values)]
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        rows += f'<tr><th scope="row">{escape(str(name))}</th>{numbers}</tr>'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    label = escape(f"Classes of {_about(figure.row)}")
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{table}</div>'


def _table(results: Results, chosen: list[Row], name: str) -> str:
    titles = ("encoder", "protocol", "metric", "value", "95 % interval", "data", "n")
    numbers = ("value", "95 % interval", "n")
    head = "".join(f'<th scope="col"{_number(title in numbers)}>{title}</th>' for title in titles)
    rows = ""
    for row in chosen:
        cells = (
            row.encoder,
            results.protocol(row),
            row.metric,
            shown(row),
            interval(row).strip("()"),
            f"{row.data} {row.split}",
            f"{row.n:,}",
        )
        kind = ' class="trained"' if row.encoder == "trained" else ""
        texts = zip(titles, cells, strict=True)
        rows += f"<tr{kind}>" + "".join(f"<td{_number(t in numbers)}>{escape(c)}</td>" for t, c in texts) + "</tr>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">{table}</div>'


def _curves(charts: list[Chart]) -> str:
    if not charts:
        return _sentence("No curves: metrics.jsonl is absent or holds no measurements.")
    figures = "".join(
        f'<figure><h3>{escape(chart.title)}</h3><div class="chart" id="chart-{number}" aria-hidden="true"></div>'
        f"<figcaption>{escape(chart.sentence())}</figcaption></figure>"
        for number, chart in enumerate(charts)
    )
    absent = "<noscript><p>The charts need JavaScript; their captions say the most important.</p></noscript>"
    return f'{absent}<div class="charts">{figures}</div>'


def _health(verdicts: list[Verdict]) -> str:
    if not verdicts:
        return _sentence("No health verdict was recorded.")
    items = ""
    for verdict in verdicts:
        level = verdict.level if verdict.level in ("good", "note", "warning", "error") else "note"
        items += (
            f'<li><span class="level {level}">{escape(verdict.level)}</span> '
            f"at step {verdict.step:,}: {escape(verdict.text)}</li>"
        )
    return f"<ul>{items}</ul>"


def _views(png: bytes | None) -> str:
    if png is None:
        return _sentence("No picture of the views is in the run folder.")
    return f'<img class="views" alt="Grid of training views: each row shows views of one sample" src="{_data(png)}">'


def _neighbours(found: Neighbours | None) -> str:
    if found is None:
        return _sentence("No nearest neighbours were written for this run.")
    strips = ""
    for number, query in enumerate(found.queries):
        label = str(found.query_labels[number])
        figures = _picture(query, label or "query", f"Query {number + 1} {label}".strip())
        for image, name, similarity in zip(
            found.images[number], found.labels[number], found.similarities[number], strict=True
        ):
            figures += _picture(image, f"{name} {similarity:.2f}".strip(), f"Neighbour {name}".strip())
        strips += (
            f'<div class="strip scroll" tabindex="0" role="group" aria-label="Neighbours of query {number + 1}">'
            f"{figures}</div>"
        )
    explained = "First of each row the query, then its nearest others with their cosine similarity."
    if found.query_labels.any():
        hits = float((found.labels == found.query_labels[:, None]).mean())
        explained += f" {percent(hits)} of the neighbours shown have the query's label."
    return _sentence(explained) + strips


def _picture(pixels: NDArray[np.uint8], caption: str, words: str) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG", optimize=True)
    return (
        f'<figure><img alt="{escape(words)}" src="{_data(content.getvalue())}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _configuration(text: str) -> str:
    if not text.strip():
        return _sentence("No config.yaml is in the run folder.")
    return f'<details open><summary>config.yaml</summary><pre tabindex="0">{escape(text)}</pre></details>'


def _environment(recorded: dict[str, object]) -> str:
    said = "As recorded by the run."
    if not recorded:
        said = "The run recorded none; this is what the page was written with."
        recorded = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
        for name in ("nearfar", "torch", "torchvision", "timm", "lightning"):
            try:
                recorded[name] = version(name)
            except PackageNotFoundError:
                continue
    rows = "".join(
        f'<tr><th scope="row">{escape(str(name))}</th><td>{escape(str(value))}</td></tr>'
        for name, value in recorded.items()
    )
    table = f"<table>{rows}</table>"
    return f'{_sentence(said)}<div class="scroll" tabindex="0" role="region" aria-label="Environment">{table}</div>'


def _scripts(charts: list[Chart]) -> str:
    if not charts:
        return ""
    from plotly.offline import get_plotlyjs  # its import and its text are only worth their cost where a chart is drawn

    data = json.dumps([chart.data() for chart in charts], allow_nan=False).replace("<", "\\u003c")
    return (
        f"<script>{get_plotlyjs()}</script>\n"
        f'<script type="application/json" id="chart-data">{data}</script>\n<script>\n{_file("page.js")}</script>\n'
    )


def _sentence(text: str) -> str:
    return f'<p class="quiet">{escape(text)}</p>'


def _data(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _number(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _file(name: str) -> str:
    return files("nearfar.report").joinpath(name).read_text(encoding="utf-8")
