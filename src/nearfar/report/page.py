"""The offline page of a run: everything it shows is inside it, and it asks nothing of any server."""

import io
import platform
import shlex
from collections.abc import Callable
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nearfar.evaluation.neighbors import Neighbours
from nearfar.evaluation.results import Results, Row, interval, percent, shown, write_atomically
from nearfar.methods import known_method
from nearfar.report import verdict as words
from nearfar.report.curves import Chart, curves, fixed_temperature
from nearfar.report.draw import line_figure
from nearfar.report.gallery import embedding_map, negatives, neighbours, sheet_style
from nearfar.report.markup import Charts, data_address, details, document, number_class, scrolling, sentence, table
from nearfar.report.projection import add_umap
from nearfar.report.run import Figure, Run, Verdict, read_run
from nearfar.report.scores import has_charts, score_charts
from nearfar.report.similarities import similarity_charts

REPORT = "report.html"
_NO_SAMPLES = "no samples are in report/samples.npz, which the end of a run and nearfar evaluate write."


def write_report(folder: Path | str, *, umap: bool = False, tell: Callable[[str], None] | None = None) -> Path:
    """Write `report.html` into a run folder from what is there, and return its path.

    Args:
        folder: of the run.
        umap: first add UMAP to the map, where umap-learn is installed and that was not done; it takes its time.
        tell: is told so before.

    Reads `config.yaml`, `metrics.jsonl`, `verdicts.json`, `evaluation.json` and the curves behind its rows in
    `evaluation/`, `views.png` and `views.txt`, `report/samples.npz` (as `Samples.save` writes it; for older runs
    `neighbours.npz`), `environment.json` and the names of checkpoints; whatever is absent or broken becomes
    a sentence. Neither the data nor the encoder is needed.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder, expected the folder of a run")
    problem = add_umap(folder, tell) if umap else None
    run = read_run(folder)
    if problem is not None:
        run.problems.append(problem)
    return write_atomically(folder / REPORT, render(run))


def render(run: Run) -> str:
    """The page as text."""
    charts, samples = Charts(), run.samples
    lost = any("report/samples.npz" in problem for problem in run.problems)
    absent = sentence("Nothing to show: report/samples.npz could not be read." if lost else f"Not shown: {_NO_SAMPLES}")
    sections = {
        "Evaluation": _evaluation(run.results) + score_charts(run.figures, charts) + _figures(run.figures),
        "Curves": curve_figures(curves(run.metrics), charts) + _temperature(run.metrics),
        "Similarities": similarity_charts(run.metrics, charts),
        "Health": _health(run.verdicts),
        "Map": absent if samples is None else embedding_map(samples, charts),
        "Nearest neighbours": _neighbours(run.neighbours) if samples is None else neighbours(samples),
        "Negatives": absent if samples is None else negatives(samples),
        "Views": _views(run),
        "Configuration": _configuration(run),
        "Environment": _environment(run.environment),
    }
    return document(run.name, _verdict(run), sections, charts, sheet_style(samples))


def verdict(run: Run) -> tuple[str, list[str]]:
    """The level of a run's health, and the verdict in sentences, that of its health first."""
    level, health = words.overall(run)
    sentences = [health, words.training(run)]
    if run.results is not None:
        sentences += words.comparisons(list(run.results.rows))
    return level, sentences + run.problems


def _verdict(run: Run) -> str:
    level, (health, *others) = verdict(run)
    paragraphs = "".join(f"<p>{escape(each)}</p>" for each in others)
    return f'<div class="verdict {level}"><p class="level {level}">{escape(health)}</p>{paragraphs}</div>'


def _evaluation(results: Results | None) -> str:
    if results is None:
        return sentence("This run has not been evaluated: there is no readable evaluation.json.")
    notes = "".join(sentence(note) for note in results.notes)
    if not results.rows:
        return notes or sentence("The evaluation holds no results.")
    first = [row for row in results.rows if words.is_headline(row)]
    content = _results(results, first, "Evaluation table")
    if len(first) < len(results.rows):
        content += details("All metrics", _results(results, results.rows, "All metrics"))
    return f"{content}{notes}"


def _results(results: Results, chosen: list[Row], name: str) -> str:
    titles = ("encoder", "protocol", "metric", "value", "95 % interval", "data", "n")
    numbers = ("value", "95 % interval", "n")
    rows = []
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
        texts = "".join(
            f"<td{number_class(title in numbers)}>{escape(cell)}</td>"
            for title, cell in zip(titles, cells, strict=True)
        )
        rows.append(f"<tr{kind}>{texts}</tr>")
    return table(titles, rows, name, numbers)


def _figures(figures: list[Figure]) -> str:
    """Pictures of what has no chart: the trained encoder's to be seen at once, then a table of its classes."""
    own = [figure for figure in figures if figure.row.encoder == "trained"]
    others = [figure for figure in figures if figure.row.encoder != "trained"]
    pictures = "".join(map(_drawn, own)) + details("Figures of the other encoders", "".join(map(_drawn, others)))
    return pictures + "".join(
        details(f"Each class: {_about(figure.row)}", _per_class(figure)) for figure in own or figures if figure.classes
    )


def _about(row: Row) -> str:
    return f"{row.encoder}, {row.protocol}, {row.data} {row.split}"


def _drawn(figure: Figure) -> str:
    if figure.picture is None or has_charts(figure):
        return ""
    about = escape(_about(figure.row))
    image = f'<img class="drawn" alt="Curves of {about}" src="{data_address(figure.picture)}">'
    return f"<figure>{image}<figcaption>{about}</figcaption></figure>"


def _per_class(figure: Figure) -> str:
    titles = ("class", "n", "precision", "recall", "F1")
    rows = []
    for name, n, *values in zip(*figure.classes.values(), strict=True):
        known = int(n) > 0  # of a class without test images nothing is known
        cells = [f"{int(n):,}", *(percent(float(value)) if known else "" for value in values)]
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        rows.append(f'<tr><th scope="row">{escape(str(name))}</th>{numbers}</tr>')
    return table(titles, rows, f"Classes of {_about(figure.row)}", titles[1:])


def curve_figures(found: list[Chart], charts: Charts) -> str:
    """Charts of what was logged, with their captions."""
    if not found:
        return sentence("No curves: metrics.jsonl is absent or holds no measurements.")
    figures = "".join(line_figure(chart, chart.sentence(), charts) for chart in found)
    return f'<div class="charts">{figures}</div>'


def _temperature(metrics: list[dict[str, Any]]) -> str:
    fixed = fixed_temperature(metrics)
    return "" if fixed is None else sentence(f"The temperature is {fixed:g} in every step.")


def _health(verdicts: list[Verdict]) -> str:
    if not verdicts:
        return sentence("No health verdict was recorded.")
    items = ""
    for each in verdicts:
        level = each.level if each.level in ("good", "note", "warning", "error") else "note"
        items += (
            f'<li><span class="level {level}">{escape(each.level)}</span> '
            f"at step {each.step:,}: {escape(each.text)}</li>"
        )
    return f"<ul>{items}</ul>"


def _views(run: Run) -> str:
    if run.views is None:
        method = known_method(str(run.config.get("method")))
        texts = (run.config.get("modality") or method.modalities[0]) == "text"
        why = "dropout or partner sentences are the views of texts" if texts else "views.png is not in the run folder"
        return sentence(f"No picture of the views: {why}.")
    words = "Grid of training views: each row shows views of one sample"
    image = f'<img class="views" alt="{words}" src="{data_address(run.views)}">'
    told = "Each row is one sample: as it is, then its views as the method is given them"
    if not run.captions:
        return sentence(f"{told}.") + image
    rows = "".join(f"<li>{escape(text)}</li>" for text in run.captions)
    return sentence(f"{told}, the caption among them.") + f'<div class="captioned">{image}<ol>{rows}</ol></div>'


def _neighbours(found: Neighbours | None) -> str:
    """Those of a run folder that was written before there were samples."""
    if found is None:
        return sentence(f"No nearest neighbours: {_NO_SAMPLES}")
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
    return sentence(explained) + strips


def _picture(pixels: NDArray[np.uint8], caption: str, words: str) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG", optimize=True)
    return (
        f'<figure><img alt="{escape(words)}" src="{data_address(content.getvalue())}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _configuration(run: Run) -> str:
    if not run.config_text.strip():
        return sentence("No config.yaml is in the run folder.")
    folder = run.folder if run.folder is not None else Path(run.name)
    if folder.name in ("", ".."):  # the folder that one is in, or one above it
        folder = folder.resolve()
    again = folder.with_name(f"{folder.name}-again")
    command = shlex.join(["nearfar", "train", "--config", str(folder / "config.yaml"), "--out", str(again)])
    text = f'<pre tabindex="0" aria-label="config.yaml">{escape(run.config_text)}</pre>'
    return sentence(f"To run it again, on the same data: {command}") + details("config.yaml", text, opened=True)


def _environment(recorded: dict[str, object]) -> str:
    said = "As recorded by the run. The same versions on the same kind of machine give the same weights, bit for bit."
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
    return sentence(said) + scrolling(f"<table>{rows}</table>", "Environment table")
