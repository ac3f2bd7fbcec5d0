"""Results into a folder: numbers as soon as they are measured, then figures, samples and, for a run, its report."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.text import Text
from torch import Tensor

from nearfar.data.cache import write_file
from nearfar.data.dataset import Dataset
from nearfar.evaluation.evaluate import Evaluation
from nearfar.evaluation.results import Results, file_name
from nearfar.messages import one_line
from nearfar.model.encoder import Encoder
from nearfar.model.save import CARD
from nearfar.progress import print_line
from nearfar.report.figures import FIGURES, draw_curves
from nearfar.report.judgement import is_headline, judge
from nearfar.report.next_step import next_step
from nearfar.report.page import write_report
from nearfar.report.run import read_run
from nearfar.report.samples import SAMPLES, Positives, take_samples
from nearfar.report.summary_table import all_metrics, headline_rows
from nearfar.report.verdict import first_line
from nearfar.safe_read import opened_npz, read_json
from nearfar.weights.names import parse_name

RESULTS = "evaluation.json"
VERDICT = ("verdict", "verdict_level")  # keys of the card
QUIET = 10.0  # seconds between two lines of progress where there is no bar
_COLORS = {"good": "green", "warning": "yellow", "error": "red"}


def evaluate_to_folder(
    encoder: str, *, out: Path | None = None, console: Console | None = None, **options: Any
) -> tuple[Results, Path]:
    """Evaluate an encoder and write what was found.

    Args:
        encoder: as `nearfar.evaluate` takes it, by name.
        out: the folder; None: the run's own, or one under `evaluations/` for an encoder of another library.
        console: for lines of progress.
        options: further arguments of `nearfar.evaluate`.

    Returns:
        The results, and the folder that holds them: `evaluation.json`, where rows of earlier evaluations stay unless
        they were measured anew, curves under `evaluation/`, and for a run its report. Numbers are written as soon as
        they are measured, so an interruption does not cost them.
    """
    folder = results_folder(encoder, out)
    evaluation = Evaluation(encoder, **options)
    with ResultsFolder(folder, console or Console()) as kept:
        results = evaluation.run(kept.finished)
        kept.end(results, evaluation)
    return results, folder


def results_folder(encoder: str, out: Path | None) -> Path:
    """Where the evaluation of an encoder is written: the run's own folder, or one under `evaluations/`."""
    run = Path(encoder).expanduser()
    own = run.is_dir() and parse_name(encoder).kind == "folder"
    folder = out or (run if own else Path("evaluations") / file_name(encoder.removesuffix(".onnx")))
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, expected a folder to write to; give another with --out")
    return folder


class ResultsFolder:
    """Keeps finished numbers even if the rest fails, and shows progress if there is no terminal for a progress bar.

    If nothing is finished, nothing is written.
    """

    def __init__(self, folder: Path, console: Console) -> None:
        self.fresh = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.console = folder, console
        self.last: Results | None = None
        self.start, self.told = time.perf_counter(), -QUIET
        earlier_results(folder, self.tell)  # before the work: a broken file must not cost it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None and self.last is not None:
            self.tell(f"stopped; what was measured before is in {self.folder}")
            refresh_report(self.last, self.folder)
        elif kind is not None and self.fresh:
            with suppress(OSError):  # something is in it
                self.folder.rmdir()

    def finished(self, what: str, results: Results) -> None:
        """Write what was measured so far."""
        if not results.rows:
            return
        self.last = results
        self._write(results)
        seconds = time.perf_counter() - self.start
        if not self.console.is_terminal and seconds - self.told >= QUIET:
            self.told = seconds
            self.tell(f"{what}: done after {seconds:.0f} s")

    def end(self, results: Results, evaluation: Evaluation) -> None:
        """Write all of it, with samples, figures and the report."""
        if not results.rows:
            raise ValueError("nothing was measured: " + "; ".join(results.notes))
        self._write(results)
        self._samples(evaluation)
        refresh_report(results, self.folder)

    def _write(self, results: Results) -> None:
        """The numbers after what the folder holds, and the arrays that were last added."""
        results.after(earlier_results(self.folder, self.tell)).save(self.folder / RESULTS)
        replace(results, curves=dict(list(results.curves.items())[-1:])).save_curves(self.folder / FIGURES)

    def _samples(self, evaluation: Evaluation) -> None:
        """Let the report of a run show single samples of the data it was evaluated on."""
        trained, evaluated = evaluation.encoders.get("trained"), evaluation.splits.evaluated
        if trained is None or evaluated is None or evaluated[0].boxed or not (self.folder / CARD).exists():
            return
        test, split = evaluated
        if not has_samples(self.folder, evaluation.data, split):
            problem = save_samples(
                self.folder, trained, test, data=evaluation.data, split=split, seed=0, ids=test.groups
            )
            if problem is not None:
                self.tell(problem)

    def tell(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)


def earlier_results(folder: Path, tell: Callable[[str], None]) -> Results:
    """What the folder already holds. A file that cannot be read is moved aside, and a line says so."""
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


def refresh_report(results: Results, folder: Path) -> None:
    """Draw the figures and, for a run, write its report anew."""
    draw_curves(results, folder / FIGURES)
    if (folder / CARD).exists():
        write_report(folder)
        write_verdict(folder)


def verdict_of(folder: Path) -> str | None:
    """The first sentence of a run's report; None if the folder is not a run's."""
    return first_line(read_run(folder))[1] if (folder / CARD).exists() else None


def write_verdict(folder: Path) -> None:
    """Put the verdict on the card, as its first key; a card that cannot be read stays as it is."""
    path = folder / CARD
    try:
        card = read_json(path)
        level, line = first_line(read_run(folder))
        card = {"verdict": line, "verdict_level": level, **{k: v for k, v in card.items() if k not in VERDICT}}
        write_file(path, json.dumps(card, indent=1, ensure_ascii=False))
    except (OSError, ValueError, AttributeError):
        return


def print_verdict(
    folder: Path, results: Results, console: Console, *, report: Path | None = None, every: bool = False
) -> None:
    """Better, same or WORSE; a row of numbers for each protocol; where the report is; what to try next.

    Args:
        folder: of the run or the evaluation.
        results: what was measured now.
        console: where to print.
        report: the page, or the file of results; None: there is none.
        every: print every metric, too.
    """
    run = read_run(folder) if (folder / CARD).exists() else None
    judged = judge(results)
    level, line = first_line(run) if run is not None else (judged.level, f"{judged.line}.") if judged else ("note", "")
    if line:
        console.print(Text(line, style=f"bold {_COLORS.get(level, '')}".strip()))
    if results.rows:
        console.print(headline_rows(results, console.width))
    if every:
        console.print(all_metrics(results))
    elif results.rows:  # else the notes are why nothing was measured, which was said
        for note in (each for each in results.notes if each not in results.details):
            console.print(Text(f"note: {note}", style="dim"))
    if report is not None:
        what = "report" if report.suffix == ".html" else "results"
        print_line(console, f"{what}: {report}{_measured_on(results)}")
    if run is not None and (step := next_step(run)) is not None:
        print_line(console, str(step))


def _measured_on(results: Results) -> str:
    """The samples behind the numbers, where they are of one data set."""
    rows = [row for row in results.rows if is_headline(row)]
    if len({(row.split, row.data) for row in rows}) != 1:
        return ""
    return f"  ({rows[0].n:,} {rows[0].split} samples of {rows[0].data})"


def save_samples(
    folder: Path,
    encoder: Encoder,
    dataset: Dataset,
    *,
    data: str,
    split: str,
    seed: int,
    ids: Tensor | None = None,
    positives: Callable[[Tensor], Positives | None] | None = None,
) -> str | None:
    """Write `report/samples.npz` by `take_samples`; an error becomes a line, and costs nothing else."""
    try:
        take_samples(
            encoder,
            dataset,
            prepare=encoder.prepare,
            pictures=encoder.modality.thumbnails,
            ids=ids,
            positives=positives,
            data=data,
            split=split,
            seed=seed,
        ).save(folder)
    except Exception as error:  # a picture in a report is not worth the numbers of a run
        return f"the report shows no single samples: {one_line(error)}"
    return None


def has_samples(folder: Path, data: str, split: str) -> bool:
    """Whether the samples of these data are there already: the encoder of a run does not change."""
    try:
        with opened_npz(folder / SAMPLES) as arrays:
            return bool(arrays["data"][:2].tolist() == [data, split])
    except Exception:  # absent or broken
        return False
