"""`nearfar.report`: the report of a run, or the comparison of several."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from nearfar.data.cache import write_file
from nearfar.notebook import Printed
from nearfar.report.compare import write_comparison
from nearfar.report.page import write_report
from nearfar.report.run import read_run
from nearfar.report.verdict import verdict

COMPARISON = "comparison.html"
_FILES = ("config.yaml", "metrics.jsonl", "evaluation.json")  # of a run


@dataclass(frozen=True)
class WrittenReport(Printed):
    """A report: the verdict on each run, and where its page is.

    Attributes:
        path: of the page, which needs neither network nor server.
        verdicts: the sentences on each run, by its folder.
    """

    path: Path
    verdicts: dict[str, list[str]]

    def shown(self) -> str:
        lines = []
        for name, sentences in self.verdicts.items():
            lines += [name, *(f"  {sentence}" for sentence in sentences)] if len(self.verdicts) > 1 else sentences
        return "\n".join([*lines, f"report: {self.path}"])

    def _repr_html_(self) -> str:
        parts = []
        for name, sentences in self.verdicts.items():
            first, *others = sentences
            more = "".join(f"<li>{escape(sentence)}</li>" for sentence in others)
            parts.append(f"<p><b>{escape(name)}: {escape(first)}</b></p><ul>{more}</ul>")
        address = escape(self.path.absolute().as_uri())
        return f'{"".join(parts)}<p>report: <a href="{address}">{escape(str(self.path))}</a></p>'


def report(
    *runs: str | Path, out: str | Path | None = None, notify: Callable[[str], None] | None = None
) -> WrittenReport:
    """Write the report of a run again from its folder, or one page that compares several runs.

    Data and encoder are not needed. Where umap-learn is installed, UMAP is added to the map of one run once, which may
    take a minute.

    Args:
        runs: run folders.
        out: file of the comparison (None: comparison.html), or for a copy of the one report.
        notify: called with a line before what takes long.
    """
    path = None if out is None else Path(out).expanduser()
    if not runs:
        raise ValueError("no run was given, expected one run folder or several")
    if path is not None and path.is_dir():
        raise IsADirectoryError(f"--out is {path}, a folder, expected a file to write")
    folders = []
    for run in runs:
        if not isinstance(run, str | Path):
            raise TypeError(f"a run is a {type(run).__name__}, expected the path of its folder")
        folders.append(folder := Path(run).expanduser())
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no run folder {str(folder)!r}; expected one that nearfar train wrote")
        if not any((folder / name).exists() for name in _FILES):
            raise ValueError(f"{folder} holds no run: it has no {', '.join(_FILES[:-1])} or {_FILES[-1]}")
    if len(folders) > 1:
        written = write_comparison(folders, path or COMPARISON)
    else:
        written = write_report(folders[0], umap=True, notify=notify)
        written = written if path is None else write_file(path, written.read_bytes())
    return WrittenReport(written, {str(folder): verdict(read_run(folder))[1] for folder in folders})
