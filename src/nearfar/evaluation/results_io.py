"""What a folder keeps: of an evaluation all that was there and each new number, of a run that failed nothing."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nearfar.evaluation.results import Results, file_name
from nearfar.model.encoder import CARD
from nearfar.report.figures import FIGURES, draw_curves
from nearfar.report.page import write_report
from nearfar.report.run import read_run
from nearfar.report.verdict import overall

RESULTS = "evaluation.json"


def results_folder(spec: str, out: Path | None) -> Path:
    """Where the evaluation of an encoder is written: the run's own folder, or one under `evaluations/`."""
    run = Path(spec).expanduser()
    folder = out or (run if run.is_dir() else Path("evaluations") / file_name(spec.removesuffix(".onnx")))
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, expected a folder to write to; give another with --out")
    return folder


def earlier(folder: Path, tell: Callable[[str], None]) -> Results:
    """What the folder already holds. A file that cannot be read is moved aside, and that is told."""
    path = folder / RESULTS
    if not path.exists():
        return Results()
    try:
        return Results.load(path)
    except ValueError:
        aside, number = path.with_name(f"{RESULTS}.broken"), 1
        while aside.exists():
            number += 1
            aside = path.with_name(f"{RESULTS}.broken-{number}")
        path.rename(aside)
        tell(f"{path} does not hold evaluation results; it was moved to {aside}, and a new one is written")
        return Results()


def keep(results: Results, folder: Path, tell: Callable[[str], None]) -> None:
    """Write the numbers after what the folder holds, and the arrays that were last added."""
    results.after(earlier(folder, tell)).save(folder / RESULTS)
    replace(results, curves=dict(list(results.curves.items())[-1:])).save_curves(folder / FIGURES)


# What a run writes before its first step.
_BEGUN = {"lock", "config.yaml", "environment.json", "views.png", "views.txt", "tokenizer.json", "verdicts.json"}
_BEGUN |= {"skipped.txt", "clipped.txt"}


def discard(folder: Path) -> None:
    """Remove the folder of a run that came to nothing, unless something else is in it."""
    if {entry.name for entry in folder.iterdir()} <= _BEGUN:
        with suppress(OSError):  # an open file, where the system does not remove such
            shutil.rmtree(folder)


def verdict_of(folder: Path) -> str | None:
    """The first sentence of a run's report; None where there is no report."""
    return overall(read_run(folder))[1] if (folder / CARD).exists() else None


def show(results: Results, folder: Path) -> None:
    """Draw the figures and, for a run, write its report anew."""
    draw_curves(results, folder / FIGURES)
    if (folder / CARD).exists():
        write_report(folder)
