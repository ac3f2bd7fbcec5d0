"""Several runs on one page: verdicts, results, overlaid curves, and how their configurations differ."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from nearfar.data.cache import write_file
from nearfar.evaluation.results import Row
from nearfar.messages import shorten
from nearfar.methods import METHODS
from nearfar.report.curves import overlaid_curves
from nearfar.report.markup import Charts, data_address, details, document, sentence, table, table_row, verdict_block
from nearfar.report.page import curve_figures, no_curves
from nearfar.report.run import RunRecord, read_run
from nearfar.report.scoreboard import scoreboard
from nearfar.report.verdict import clearly_better, is_headline, value_and_interval, verdict

_MAX_SETTING = 200  # characters
_DECIDED = ("optimizer.lr", "optimizer.weight_decay", "views.preset", "text.dropout")  # have a default elsewhere
Runs = Mapping[str, RunRecord]  # by name
Measure = tuple[str, str, str, str]  # protocol, metric, data, split


def write_comparison(folders: Sequence[Path | str], path: Path | str) -> Path:
    """Write a page that compares two or more runs; returns its path."""
    paths = [Path(folder) for folder in folders]
    if len(paths) < 2:
        raise ValueError(f"{len(paths)} run to compare, expected at least two")
    for folder in paths:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder, expected the folder of a run")
    if len({folder.resolve() for folder in paths}) < len(paths):
        raise ValueError("a run is given twice, expected different ones")
    return write_file(path, render_comparison(dict(zip(_short_names(paths), map(read_run, paths), strict=True))))


def render_comparison(runs: Runs) -> str:
    """The page as text."""
    charts = Charts()
    common, differing = _settings(runs)
    common_rows = [table_row(key, [value], "wrap") for key, value in common.items()]
    sections = {
        "Results": _results(runs),
        "Differences in configuration": _side_by_side(differing, runs, "Table of differences")
        or sentence("The configurations do not differ."),
        "Curves": curve_figures(overlaid_curves({name: run.metrics for name, run in runs.items()}), charts)
        or no_curves(),
        "Views": _views(runs),
        "Common configuration": details("Settings that all runs share", table((), common_rows, "Common settings")),
        "Environment": _environments(runs),
    }
    header = "".join(verdict_block(*verdict(run), scoreboard(run.results), name=name) for name, run in runs.items())
    return document(f"{len(runs)} runs compared", header, sections, charts)


def _short_names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that differ."""
    whole = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, whole))):
        names = ["/".join(parts[-length:]) for parts in whole]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _results(runs: Runs) -> str:
    """Results of the trained encoders side by side: headline metrics first, the rest folded."""
    measures: dict[Measure, dict[str, Row]] = {}
    for name, run in runs.items():
        for row in run.results.rows if run.results is not None else []:
            if row.encoder == "trained":
                measures.setdefault((row.protocol, row.metric, row.data, row.split), {})[name] = row
    if not measures:
        return sentence("None of these runs has been evaluated.")
    first = {key: rows for key, rows in measures.items() if is_headline(next(iter(rows.values())))}
    missing = [name for name, run in runs.items() if run.results is None or not run.results.rows]
    content = _result_table(first, runs, "Table of results") if first else ""
    if len(first) < len(measures):
        content += details("All metrics", _result_table(measures, runs, "Table of all metrics"))
    explained = "The trained encoders, with 95 % intervals. Bold: better than every other run, intervals apart."
    if missing:
        explained += f" Not evaluated: {', '.join(missing)}."
    if len({key[2:] for key in measures}) > 1:
        explained += " Results on different data or splits are not comparable."
    return sentence(explained) + content


def _result_table(measures: Mapping[Measure, Mapping[str, Row]], runs: Runs, label: str) -> str:
    rows = []
    for (protocol, metric, data, split), found in measures.items():
        best = _best(found)
        cells = "".join(
            f'<td class="number{" best" if name == best else ""}">'
            f"{escape(value_and_interval(found[name])) if name in found else ''}</td>"
            for name in runs
        )
        heading = f'<th scope="row">{escape(f"{protocol}, {metric}")}</th><td>{escape(f"{data} {split}")}</td>'
        rows.append(f"<tr>{heading}{cells}</tr>")
    return table(["measure", "data", *runs], rows, label, list(runs))


def _best(found: Mapping[str, Row]) -> str | None:
    """The run that is clearly better than every other."""
    for name, row in found.items():
        others = [other for key, other in found.items() if key != name]
        if others and all(clearly_better(row, other, unknown=False) for other in others):
            return name
    return None


def _settings(runs: Runs) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Settings by dotted name: the value of those that all runs share, and the values of the others."""
    flat = [_flat(with_method_defaults(run.config)) for run in runs.values()]
    keys = list(dict.fromkeys(key for config in flat for key in config))
    values = {key: [config.get(key, "–") for config in flat] for key in keys}
    common = {key: each[0] for key, each in values.items() if len(set(each)) == 1}
    return common, {key: each for key, each in values.items() if key not in common}


def with_method_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the method's own defaults for options that are not set."""
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
            found[f"{prefix}{key}"] = unset if value is None or value == {} else shorten(str(value), _MAX_SETTING)
    return found


def _side_by_side(values: Mapping[str, Sequence[str]], runs: Runs, label: str) -> str:
    rows = [table_row(key, each, "wrap") for key, each in values.items()]
    return table(["setting", *runs], rows, label) if rows else ""


def _views(runs: Runs) -> str:
    figures = "".join(
        f'<figure><h3>{escape(name)}</h3><img class="views" alt="Views of {escape(name)}" '
        f'src="{data_address(run.views)}"></figure>'
        for name, run in runs.items()
        if run.views is not None
    )
    return f'<div class="charts">{figures}</div>' if figures else sentence("No run has a picture of its views.")


def _environments(runs: Runs) -> str:
    keys = list(dict.fromkeys(key for run in runs.values() for key in run.environment))
    values = {str(key): [str(run.environment.get(key, "–")) for run in runs.values()] for key in keys}
    return _side_by_side(values, runs, "Table of environments") or sentence("No run recorded its environment.")
