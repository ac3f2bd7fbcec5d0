"""The report of a run: one HTML page that holds everything it shows and needs no network."""

import platform
import shlex
from collections.abc import Callable, Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nearfar.data.cache import write_file
from nearfar.evaluation.results import Results, Row, interval, shown
from nearfar.methods import known_method
from nearfar.metric_text import percent
from nearfar.report.curves import LineChart, Metrics, fixed_temperature, training_curves
from nearfar.report.markup import Charts, data_address, details, document, sentence, table, table_row, verdict_block
from nearfar.report.next_step import next_step
from nearfar.report.run import PER_CLASS, HealthVerdict, ProtocolCurves, RunRecord, read_run
from nearfar.report.sample_sections import map_section, negatives_section, neighbors_section, thumbnail_style
from nearfar.report.samples import SAMPLES, ReportSamples, add_umap
from nearfar.report.score_charts import has_charts, score_section
from nearfar.report.scoreboard import scoreboard
from nearfar.report.similarity_charts import similarity_section
from nearfar.report.svg import line_figure
from nearfar.report.verdict import is_headline, verdict

REPORT = "report.html"


def write_report(folder: Path | str, *, umap: bool = False, notify: Callable[[str], None] | None = None) -> Path:
    """Write `report.html` into a run folder from the files in it; data and encoder are not needed.

    A missing or broken file becomes a sentence on the page.

    Args:
        folder: of the run.
        umap: add UMAP to the map first, where umap-learn is installed and it is missing; may take a minute.
        notify: called with a line before that.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder, expected the folder of a run")
    problem = add_umap(folder, notify) if umap else None
    run = read_run(folder)
    if problem is not None:
        run.problems.append(problem)
    return write_file(folder / REPORT, render(run))


def render(run: RunRecord) -> str:
    """The page as text."""
    charts, samples, curves = Charts(), run.samples, training_curves(run.metrics)
    by_group = {name: [chart for chart in curves if chart.group == name] for name in ("learning", "health", "details")}
    broken = any(SAMPLES in problem for problem in run.problems)
    absent = f"Not shown: {SAMPLES} {'could not be read' if broken else 'is missing; nearfar evaluate writes it'}."

    def of_samples(make: Callable[[ReportSamples], str]) -> str:
        try:
            return sentence(absent) if samples is None else make(samples)
        except Exception as error:  # values that no check foresaw: the rest of the page is still worth reading
            return sentence(f"Not shown: {SAMPLES} is damaged ({type(error).__name__}).")

    sections = {
        "Is it learning?": curve_figures(by_group["learning"], charts) if curves else no_curves(),
        "Is it healthy?": _health(run.verdicts)
        + _grid(curve_parts(by_group["health"], charts) + (similar := similarity_section(run.metrics, charts))[0]),
        "Evaluation": _evaluation(run.results) + score_section(run.figures, charts) + _figures(run.figures),
        "Map": of_samples(lambda found: map_section(found, charts)),
        "Nearest neighbors": of_samples(neighbors_section),
        "Negatives": of_samples(negatives_section),
        "Views": _views(run),
        "Details": details("More charts", _grid(curve_parts(by_group["details"], charts) + similar[1]))
        + _temperature(run.metrics),
        "Configuration": _configuration(run),
        "Environment": _environment(run.environment),
    }
    return document(run.name, _header(run), sections, charts, thumbnail_style(samples))


def _header(run: RunRecord) -> str:
    """Verdict and bars, health, what to try next; the rest of the words is folded."""
    level, sentences = verdict(run)
    first = [each for each in sentences[1:3] if not each.startswith("Try next")][:1]
    step = next_step(run)
    others = [each for each in sentences[1:] if each not in first and each != str(step)]
    return verdict_block(level, [sentences[0], *first], scoreboard(run.results), others, step)


def curve_figures(found: Sequence[LineChart], charts: Charts) -> str:
    """Charts of the training metrics, with their captions."""
    return _grid(curve_parts(found, charts))


def curve_parts(found: Sequence[LineChart], charts: Charts) -> str:
    return "".join(line_figure(chart, chart.sentence(), charts) for chart in found)


def _grid(figures: str) -> str:
    return f'<div class="charts">{figures}</div>' if figures else ""


def no_curves() -> str:
    return sentence("No curves: metrics.jsonl is missing or holds no measurements.")


def _evaluation(results: Results | None) -> str:
    if results is None:
        return sentence("This run has not been evaluated: there is no readable evaluation.json.")
    notes = "".join(sentence(note) for note in results.notes)
    if not results.rows:
        return notes or sentence("The evaluation holds no results.")
    first = [row for row in results.rows if is_headline(row)]
    content = _results(results, first, "Evaluation table")
    if len(first) < len(results.rows):
        content += details("All metrics", _results(results, results.rows, "All metrics"))
    return f"{content}{notes}"


def _results(results: Results, chosen: list[Row], label: str) -> str:
    titles, numbers = ("encoder", "protocol", "metric", "value", "95 % interval", "data", "n"), (3, 4, 6)
    rows = []
    for row in chosen:
        texts = [row.encoder, results.protocol(row), row.metric, shown(row), interval(row).strip("()")]
        texts += [f"{row.data} {row.split}", f"{row.n:,}"]
        kind = ' class="trained"' if row.encoder == "trained" else ""
        styles = [' class="number"' if column in numbers else "" for column in range(len(texts))]
        cells = "".join(f"<td{style}>{escape(text)}</td>" for style, text in zip(styles, texts, strict=True))
        rows.append(f"<tr{kind}>{cells}</tr>")
    return table(titles, rows, label, [titles[column] for column in numbers])


def _figures(figures: list[ProtocolCurves]) -> str:
    """Pictures of what has no chart, those of the trained encoder first, then a table of its classes."""
    own = [figure for figure in figures if figure.row.encoder == "trained"]
    others = [figure for figure in figures if figure.row.encoder != "trained"]
    pictures = "".join(map(_picture, own)) + details("Figures of the other encoders", "".join(map(_picture, others)))
    tables = [(_caption(each), _per_class(each)) for each in own or figures if each.has_classes]
    return pictures + "".join(details(f"Each class: {caption}", content) for caption, content in tables)


def _caption(figure: ProtocolCurves) -> str:
    row = figure.row
    return f"{row.encoder}, {row.protocol}, {row.data} {row.split}"


def _picture(figure: ProtocolCurves) -> str:
    if figure.picture is None or has_charts(figure):
        return ""
    caption = escape(_caption(figure))
    image = f'<img class="drawn" alt="Curves of {caption}" src="{data_address(figure.picture)}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _per_class(figure: ProtocolCurves) -> str:
    titles = ("class", "n", "precision", "recall", "F1")
    rows = []
    for name, n, *values in zip(*(figure.arrays[key] for key in PER_CLASS), strict=True):
        scores = [percent(float(value)) if n > 0 else "" for value in values]  # unknown without test samples
        rows.append(table_row(str(name), [f"{int(n):,}", *scores], "number"))
    return table(titles, rows, f"Classes of {_caption(figure)}", titles[1:])


def _temperature(metrics: Metrics) -> str:
    fixed = fixed_temperature(metrics)
    return "" if fixed is None else sentence(f"The temperature is {fixed:g} at every step.")


def _health(verdicts: list[HealthVerdict]) -> str:
    if not verdicts:
        return sentence("No health verdict was recorded.")
    items = ""
    for each in verdicts:
        level = each.level if each.level in ("good", "note", "warning", "error") else "note"
        label = f'<span class="level {level}">{escape(each.level)}</span>'
        items += f"<li>{label} at step {each.step:,}: {escape(each.text)}</li>"
    return f"<ul>{items}</ul>"


def _views(run: RunRecord) -> str:
    if run.views is None:
        method = known_method(str(run.config.get("method")))
        texts = (run.config.get("modality") or method.modalities[0]) == "text"
        reason = "the views of texts are dropout or partner sentences" if texts else "views.png is not in the folder"
        return sentence(f"No picture of the views: {reason}.")
    alt = "Grid of training views: each row shows views of one sample"
    image = f'<img class="views" alt="{alt}" src="{data_address(run.views)}">'
    explained = "Each row is one sample: the original, then its views as the method gets them"
    if not run.captions:
        return sentence(f"{explained}.") + image
    rows = "".join(f"<li>{escape(text)}</li>" for text in run.captions)
    return sentence(f"{explained}, with the caption.") + f'<div class="captioned">{image}<ol>{rows}</ol></div>'


def _configuration(run: RunRecord) -> str:
    if not run.config_text.strip():
        return sentence("No config.yaml is in the run folder.")
    folder = run.folder if run.folder is not None else Path(run.name)
    if folder.name in ("", ".."):
        folder = folder.resolve()
    again = folder.with_name(f"{folder.name}-again")
    command = shlex.join(["nearfar", "train", "--config", str(folder / "config.yaml"), "--out", str(again)])
    text = f'<pre tabindex="0" aria-label="config.yaml">{escape(run.config_text)}</pre>'
    return sentence(f"To run it again on the same data: {command}") + details("config.yaml", text)


def _environment(recorded: dict[str, object]) -> str:
    source = "Recorded by the run. The same versions on the same kind of machine give the same weights, bit for bit."
    if not recorded:
        source = "The run recorded no environment; this is the one that wrote the page."
        recorded = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
        for name in ("nearfar", "torch", "torchvision", "timm", "lightning"):
            try:
                recorded[name] = version(name)
            except PackageNotFoundError:
                continue
    rows = [table_row(str(name), [str(value)]) for name, value in recorded.items()]
    return sentence(source) + table((), rows, "Environment table")
