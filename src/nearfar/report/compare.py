"""Several runs on one page: their verdicts, their numbers, their curves over each other, and how they were set."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from nearfar.evaluation.results import Row, interval, shown, write_atomically
from nearfar.methods import METHODS
from nearfar.report import verdict as words
from nearfar.report.curves import overlaid
from nearfar.report.markup import Charts, data_address, details, document, scrolling, sentence, table
from nearfar.report.page import curve_figures, verdict
from nearfar.report.run import Run, read_run

_CELL = 200  # characters of a setting
_DECIDED = ("optimizer.lr", "optimizer.weight_decay", "views", "text.dropout")  # elsewhere, where they are not set


def write_comparison(folders: Sequence[Path | str], path: Path | str) -> Path:
    """Write a page that compares runs, two or more, from what their folders hold; returns its path."""
    paths = [Path(folder) for folder in folders]
    if len(paths) < 2:
        raise ValueError(f"{len(paths)} run to compare, expected at least two")
    for folder in paths:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder, expected the folder of a run")
    if len({folder.resolve() for folder in paths}) < len(paths):
        raise ValueError("a run is given twice, expected different ones")
    return write_atomically(path, render_comparison(dict(zip(_names(paths), map(read_run, paths), strict=True))))


def render_comparison(runs: Mapping[str, Run]) -> str:
    """The page as text."""
    charts = Charts()
    alike, differing = _settings({name: effective(run.config) for name, run in runs.items()})
    sections = {
        "Numbers": _numbers(runs),
        "Differences in configuration": _table_of(differing, runs, "Table of differences")
        or sentence("The configurations do not differ."),
        "Curves": curve_figures(overlaid({name: run.metrics for name, run in runs.items()}), charts),
        "Views": _views(runs),
        "Common configuration": details("What the runs have in common", _common(alike)),
        "Environment": _environments(runs),
    }
    header = "".join(_verdict(name, run) for name, run in runs.items())
    return document(f"{len(runs)} runs compared", header, sections, charts)


def _names(folders: Sequence[Path]) -> list[str]:
    """As little of each path as tells them apart."""
    whole = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, whole))):
        names = ["/".join(parts[-length:]) for parts in whole]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _verdict(name: str, run: Run) -> str:
    level, (health, *others) = verdict(run)
    paragraphs = "".join(f"<p>{escape(each)}</p>" for each in others)
    return (
        f'<div class="verdict {level}"><p><strong>{escape(name)}</strong> <span class="level {level}">{escape(health)}'
        f"</span></p>{paragraphs}</div>"
    )


def _numbers(runs: Mapping[str, Run]) -> str:
    """The trained encoders' numbers side by side: first those to read first, the rest to be unfolded."""
    measures: dict[tuple[str, str, str, str], dict[str, Row]] = {}
    for name, run in runs.items():
        for row in run.results.rows if run.results is not None else []:
            if row.encoder == "trained":
                measures.setdefault((row.protocol, row.metric, row.data, row.split), {})[name] = row
    if not measures:
        return sentence("None of these runs has been evaluated.")
    first = {key: rows for key, rows in measures.items() if words.is_headline(next(iter(rows.values())))}
    lost = [name for name, run in runs.items() if run.results is None or not run.results.rows]
    content = _measured(first, runs, "Table of numbers") if first else ""
    if len(first) < len(measures):
        content += details("All metrics", _measured(measures, runs, "Table of all metrics"))
    explained = "The trained encoders, with 95 % intervals. In bold: better than every other run, with intervals apart."
    if lost:
        explained += f" Not evaluated: {', '.join(lost)}."
    if len({key[2:] for key in measures}) > 1:
        explained += " Numbers on other data or splits are not comparable."
    return sentence(explained) + content


def _measured(
    measures: Mapping[tuple[str, str, str, str], Mapping[str, Row]], runs: Mapping[str, Run], label: str
) -> str:
    rows = []
    for (protocol, metric, data, split), found in measures.items():
        best = _best(found)
        cells = "".join(
            f'<td class="number{" best" if name == best else ""}">{_cell(found.get(name))}</td>' for name in runs
        )
        measure, where = escape(f"{protocol}, {metric}"), escape(f"{data} {split}")
        rows.append(f'<tr><th scope="row">{measure}</th><td>{where}</td>{cells}</tr>')
    return table(["measure", "data", *runs], rows, label, list(runs))


def _cell(row: Row | None) -> str:
    return "" if row is None else escape(f"{shown(row)} {interval(row)}".strip())


def _best(found: Mapping[str, Row]) -> str | None:
    """The run whose interval lies apart from that of every other, on the better side."""
    for name, row in found.items():
        others = [other for key, other in found.items() if key != name]
        if others and all(_apart(row, other) for other in others):
            return name
    return None


def _apart(row: Row, other: Row) -> bool:
    if row.low is None or row.high is None or other.low is None or other.high is None:
        return False
    return row.high < other.low if row.metric.startswith(words.LESS_IS_BETTER) else row.low > other.high


def _settings(configs: Mapping[str, dict[str, Any]]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Settings by dotted name: those that all runs have alike, and of the others the value in each."""
    flat = [_flat(config) for config in configs.values()]
    keys = list(dict.fromkeys(key for config in flat for key in config))
    values = {key: [config.get(key, "–") for config in flat] for key in keys}
    alike = {key: each[0] for key, each in values.items() if len(set(each)) == 1}
    return alike, {key: each for key, each in values.items() if key not in alike}


def effective(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the values that a method has where nothing is set."""
    method, options = METHODS.get(str(config.get("method"))), config.get("options")
    if method is None or not isinstance(options or {}, dict):
        return dict(config)
    own = {name: default for name, default in method.options().items() if name != "seed"}  # which is the run's
    return {**config, "options": own | (options or {})}


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{key}.")
        else:
            unset = "default" if f"{prefix}{key}" in _DECIDED or prefix == "options." else "none"
            text = unset if value is None or value == {} else str(value)
            found[f"{prefix}{key}"] = text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"
    return found


def _table_of(values: Mapping[str, Sequence[str]], runs: Mapping[str, Run], label: str) -> str:
    if not values:
        return ""
    rows = []
    for key, each in values.items():
        cells = "".join(f'<td class="wrap">{escape(value)}</td>' for value in each)
        rows.append(f'<tr><th scope="row">{escape(key)}</th>{cells}</tr>')
    return table(["setting", *runs], rows, label)


def _common(alike: Mapping[str, str]) -> str:
    if not alike:
        return sentence("Nothing.")
    rows = "".join(
        f'<tr><th scope="row">{escape(k)}</th><td class="wrap">{escape(v)}</td></tr>' for k, v in alike.items()
    )
    return scrolling(f"<table>{rows}</table>", "Table of the common configuration")


def _views(runs: Mapping[str, Run]) -> str:
    shown_ = "".join(
        f'<figure><h3>{escape(name)}</h3><img class="views" alt="Views of {escape(name)}" '
        f'src="{data_address(run.views)}"></figure>'
        for name, run in runs.items()
        if run.views is not None
    )
    return f'<div class="charts">{shown_}</div>' if shown_ else sentence("No run has a picture of its views.")


def _environments(runs: Mapping[str, Run]) -> str:
    keys = list(dict.fromkeys(key for run in runs.values() for key in run.environment))
    values = {str(key): [str(run.environment.get(key, "–")) for run in runs.values()] for key in keys}
    return _table_of(values, runs, "Table of environments") or sentence("No run has recorded its environment.")
