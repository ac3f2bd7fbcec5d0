"""What happens after a step: progress bar, log, health verdicts, checkpoints, and stopping."""

import json
import math
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from nearfar.data.cache import replacing
from nearfar.methods.advice import Verdict
from nearfar.model import checkpoint
from nearfar.nn.shard import all_reduce_max
from nearfar.safe_read import LOG, read_json, read_text
from nearfar.training._lightning import lightning
from nearfar.training.health import judge, measure, well
from nearfar.training.lightning_module import Pretraining
from nearfar.training.online_evaluation import OnlineEvaluation
from nearfar.training.processes import is_rank_zero
from nearfar.training.start_comparison import StartComparison

_MARK = {"good": "[green]✓[/]", "note": "[cyan]·[/]", "warning": "[yellow]![/]", "error": "[red]✗[/]"}
_PROGRESS_EVERY = 30.0  # seconds between progress lines if the output is no terminal


class TrainingMonitor(lightning.Callback):
    """After each step: progress; after some: health, validation, checkpoint. Only rank 0 writes and prints.

    Args:
        folder: the run folder.
        evaluation: measures the encoder on held-out samples; None if there are none.
        steps_per_epoch: optimizer steps.
        console: where it prints.
        data: fingerprint of the training data, kept in checkpoints.
    """

    def __init__(
        self,
        folder: Path,
        evaluation: OnlineEvaluation | StartComparison | None,
        steps_per_epoch: int,
        console: Console,
        data: str,
    ) -> None:
        self.data, self.is_rank_zero = data, is_rank_zero()
        self.folder, self.evaluation, self.steps_per_epoch, self.console = folder, evaluation, steps_per_epoch, console
        self.stop_signal = 0  # number of the signal that asked to stop
        self.best: float | None = None
        self.final_weights: dict[str, Tensor] = {}  # of the method, after the last step
        self.verdicts: list[dict[str, Any]] = []
        self._announced: dict[str, str] = {}
        self._wrong: set[str] = set()  # the rules that have warned since all was well
        self._bar = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
        )
        self._since = (0, time.perf_counter())
        self._progress_printed = self._since[1]
        self._scaler: dict[str, Any] = {}

    # Lightning's hooks

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        assert isinstance(module, Pretraining)
        if self._scaler:
            trainer.precision_plugin.load_state_dict(self._scaler)
        if self.is_rank_zero:
            self._bar.start()
        self._task = self._bar.add_task("", total=module.total, completed=module.done, state="")
        self._since = (module.done, time.perf_counter())
        self._progress_printed = time.perf_counter()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, Pretraining) and module.last is not None
        if (batch_idx + 1) % module.config.accumulate_batches:
            return
        if trainer.world_size > 1:  # a signal to one process stops all of them after the same step
            self.stop_signal = int(all_reduce_max(self.stop_signal, module.device))
        if self.stop_signal:
            trainer.should_stop = True
        self._after_step(module)

    def _after_step(self, module: Pretraining) -> None:
        """Every process takes the same branches: gathering sharded weights is a collective."""
        assert module.last is not None
        done, last = module.done, module.done == module.total
        if self.is_rank_zero:
            state = f"loss {module.values.loss:.3f}  lr {module.rate:.2g}  {self._speed(module):.0f}/s"
            self._bar.update(self._task, completed=done, state=state)
            self._print_progress(module)
        epoch_ends = done % self.steps_per_epoch == 0
        logged = done % module.config.health_every == 0 or last or done == 1
        evaluated = self.evaluation is not None and self.evaluation.due(
            done, module.total, epoch_ends=epoch_ends, logged=logged
        )
        if logged or evaluated:
            self._log_metrics(module, evaluated=evaluated)
        if done % module.config.checkpoint_every == 0 or epoch_ends or last or self.stop_signal:
            self.save(module)

    def on_train_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        assert isinstance(module, Pretraining)
        self._bar.stop()
        if module.done < module.total and not self.stop_signal:  # a callback of the user's ended it
            self.save(module, last=True)

    def on_exception(
        self, trainer: lightning.Trainer, module: lightning.LightningModule, exception: BaseException
    ) -> None:
        self._bar.stop()

    # Its own work

    def resume(self, state: dict[str, Any], module: Pretraining) -> None:
        """Take up a run where a checkpoint left it; what was logged after that is forgotten."""
        module.done, module.optimizer_state, self.best = state["step"], state["optimizer"], state["best"]
        self._scaler = state["scaler"]
        if not self.is_rank_zero:
            return
        log, said = self.folder / "metrics.jsonl", self.folder / "verdicts.json"
        if log.exists():
            lines = [
                line for line in read_text(log, LOG, errors="replace").splitlines() if _step_of(line) <= module.done
            ]
            with replacing(log) as fresh:
                fresh.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        with suppress(OSError, ValueError, TypeError, KeyError):  # not there, or no longer whole
            self.verdicts = [v for v in read_json(said) if v["step"] <= module.done]

    def save(self, module: Pretraining, *, last: bool = False) -> None:
        """Write everything that the rest of the run depends on; the weights of the last step are kept for the end."""
        module.values.finish()  # no checkpoint of weights that are not finite
        state: dict[str, Any] = {
            "config": json.dumps(asdict(module.config)),
            "step": module.done,
            "method": module.whole_weights(),
            "optimizer": module.whole_optimizer_state(),
            "scaler": module.trainer.precision_plugin.state_dict(),
            "best": self.best,
            "data": self.data,
        }
        if self.is_rank_zero:
            checkpoint.save_step(state, self.folder / "checkpoints", module.done)
            self.final_weights = state["method"] if last or module.done == module.total else {}

    def announce(self, verdict: Verdict, step: int) -> None:
        """Tell a verdict once, and again only when its level changes."""
        if not self.is_rank_zero or self._announced.get(verdict.name) == verdict.level:
            return
        self._announced[verdict.name] = verdict.level
        self.verdicts.append({"step": step, "level": verdict.level, "text": verdict.text})
        with replacing(self.folder / "verdicts.json") as fresh:
            fresh.write_text(json.dumps(self.verdicts, indent=1, ensure_ascii=False), encoding="utf-8")
        self._bar.console.print(
            f"{_MARK[verdict.level]} {f'step {step}' if step else 'before training'}: {escape(verdict.text)}",
            highlight=False,
            soft_wrap=True,
        )

    def _log_metrics(self, module: Pretraining, *, evaluated: bool) -> None:
        assert module.last is not None
        weights = module.whole_weights() if evaluated else None
        if not self.is_rank_zero:
            return
        found = measure(module.last)
        module.values.finish()
        found |= {"loss": module.values.loss, "lr": module.rate, "gradient_norm": module.values.gradient_norm}
        found |= {"samples_per_second": self._speed(module), "epoch": module.epochs * module.done / module.total}
        if isinstance(fixed := vars(module.method).get("temperature"), int | float):  # who learns it logs it
            found["temperature"] = float(fixed)
        if weights is not None and self.evaluation is not None:
            found |= self.evaluation.measure(module.whole_method(weights))
            self._keep_best(module, found, weights)
        verdicts = judge(found, module.done, module.total)
        for verdict in verdicts:
            self.announce(verdict, module.done)
        self._announce_if_healthy(found, verdicts, module)
        line = {"step": module.done} | {name: _plain(value) for name, value in found.items()}
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        numbers = {name: value for name, value in found.items() if isinstance(value, float)}
        for logger in module.trainer.loggers:
            logger.log_metrics(numbers, step=module.done)
        if len(module.trainer.callbacks) > 1:  # type: ignore[attr-defined]  # those of the user may look at them
            module.log_dict(numbers, logger=False, on_step=True, on_epoch=False, batch_size=1, rank_zero_only=True)

    def _announce_if_healthy(
        self, found: dict[str, float | list[float]], verdicts: list[Verdict], module: Pretraining
    ) -> None:
        """Once a warning is over, and at the end of a run that is well."""
        wrong = {verdict.name for verdict in verdicts if verdict.level in ("warning", "error")}
        if wrong:
            self._wrong |= wrong
        elif self._wrong or module.done == module.total:
            for name in (*self._wrong, "well"):  # so that they are told again
                self._announced.pop(name, None)
            self._wrong = set()
            self.announce(well(found), module.done)

    def _keep_best(
        self, module: Pretraining, found: dict[str, float | list[float]], weights: dict[str, Tensor]
    ) -> None:
        assert self.evaluation is not None
        score = self.evaluation.score(found)
        if score is not None and (self.best is None or score > self.best):
            self.best = score
            plain = {name: value for name, value in found.items() if isinstance(value, float)}
            state = {"step": module.done, "method": weights, "score": score, "found": plain}
            checkpoint.save(state, self.folder / "checkpoints" / "best.pt")

    def _print_progress(self, module: Pretraining) -> None:
        """A line now and then where the output is no terminal, so that a log is not silent until the end."""
        now, (begun, start) = time.perf_counter(), self._since
        if self.console.is_terminal or self.console.is_jupyter or now < self._progress_printed + _PROGRESS_EVERY:
            return
        self._progress_printed = now
        assert module.last is not None
        left = timedelta(seconds=round((module.total - module.done) * (now - start) / max(module.done - begun, 1)))
        line = f"step {module.done:,} of {module.total:,}: loss {module.values.loss:.3f}, ETA {left}"
        self.console.print(line, highlight=False, soft_wrap=True)

    def _speed(self, module: Pretraining) -> float:
        step, start = self._since
        samples = (module.done - step) * module.config.batch_size * module.config.accumulate_batches
        return samples / max(time.perf_counter() - start, 1e-9)


def _step_of(line: str) -> float:
    """The step of a line of the log; a line cut short by a crash belongs to no step."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _plain(value: float | list[float]) -> float | list[float] | None:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
