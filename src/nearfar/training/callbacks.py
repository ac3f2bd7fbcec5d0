"""What happens beside the steps: the progress bar, the log, the health, the checkpoints, and stopping in order."""

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import lightning
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from nearfar.data.cache import replacing
from nearfar.methods.advice import Verdict
from nearfar.nn.shard import all_reduce_max
from nearfar.training import checkpoint
from nearfar.training.health import judge, measure, well
from nearfar.training.lightning_module import Pretraining
from nearfar.training.online_evaluation import Readout
from nearfar.training.processes import is_first

_MARK = {"good": "[green]✓[/]", "note": "[cyan]·[/]", "warning": "[yellow]![/]", "error": "[red]✗[/]"}
_SIGN = 30.0  # seconds between signs of life where the bar cannot be seen
_SAME = 1.0  # seconds in which a second SIGTERM is the first once more


class Watch(lightning.Callback):
    """Looks after every step and acts on a few of them; of several processes the first alone writes and speaks."""

    def __init__(
        self, folder: Path, readout: Readout | None, steps_per_epoch: int, console: Console, data: str
    ) -> None:
        self.data = data  # which data the run is on
        self.first = is_first()
        self.folder, self.readout, self.steps_per_epoch, self.console = folder, readout, steps_per_epoch, console
        self.stopped = False
        self.best: float | None = None
        self.final: dict[str, Tensor] = {}  # the weights of the last step
        self.verdicts: list[dict[str, Any]] = []
        self._said: dict[str, str] = {}
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
        self._signed = self._since[1]
        self._scaler: dict[str, Any] = {}

    # Lightning's hooks

    def on_train_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        assert isinstance(module, Pretraining)
        if self._scaler:
            trainer.precision_plugin.load_state_dict(self._scaler)
        if self.first:
            self._bar.start()
        self._task = self._bar.add_task("", total=module.total, completed=module.done, state="")
        self._since = (module.done, time.perf_counter())
        self._signed = time.perf_counter()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, Pretraining) and module.last is not None
        if (batch_idx + 1) % module.config.accumulate_batches:
            return
        if trainer.world_size > 1:  # who was asked to stop tells the others, and all stop after the same step
            self.stopped = bool(all_reduce_max(int(self.stopped), module.device))
        if self.stopped:
            trainer.should_stop = True
        self._act(module)

    def _act(self, module: Pretraining) -> None:
        """All processes come to the same decisions, so that all are there where weights are put together."""
        assert module.last is not None
        done, last = module.done, module.done == module.total
        if self.first:
            state = f"loss {float(module.last.loss):.3f}  lr {module.rate:.2g}  {self._speed(module):.0f}/s"
            self._bar.update(self._task, completed=done, state=state)
            self._give_sign(module)
        epoch_ends = done % self.steps_per_epoch == 0
        if done % module.config.health_every == 0 or last or done == 1:
            self._look(module, knn=epoch_ends or last)
        elif epoch_ends and self.readout is not None and self.readout.due(done, module.total):
            self._look(module, knn=True)
        if done % module.config.checkpoint_every == 0 or epoch_ends or last or self.stopped:
            self.save(module)

    def on_train_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        self._bar.stop()

    def on_exception(
        self, trainer: lightning.Trainer, module: lightning.LightningModule, exception: BaseException
    ) -> None:
        self._bar.stop()

    # Its own work

    def resume(self, state: dict[str, Any], module: Pretraining) -> None:
        """Take up a run where a checkpoint left it; what was logged after that is forgotten."""
        module.done, module.optimiser_state, self.best = state["step"], state["optimizer"], state["best"]
        self._scaler = state["scaler"]
        if not self.first:
            return
        log, said = self.folder / "metrics.jsonl", self.folder / "verdicts.json"
        if log.exists():
            lines = [line for line in log.read_text(encoding="utf-8").splitlines() if _step_of(line) <= module.done]
            with replacing(log) as fresh:
                fresh.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        with suppress(OSError, ValueError, TypeError, KeyError):  # not there, or no longer whole
            self.verdicts = [v for v in json.loads(said.read_text(encoding="utf-8")) if v["step"] <= module.done]

    def save(self, module: Pretraining) -> None:
        """Write everything that the rest of the run depends on."""
        state: dict[str, Any] = {
            "config": json.dumps(asdict(module.config)),
            "step": module.done,
            "method": module.weights(),
            "optimizer": module.memory(),
            "scaler": module.trainer.precision_plugin.state_dict(),
            "best": self.best,
            "data": self.data,
        }
        if self.first:
            checkpoint.save_step(state, self.folder / "checkpoints", module.done)
            self.final = state["method"] if module.done == module.total else {}

    def say(self, verdict: Verdict, step: int) -> None:
        """Tell a verdict once, and again only when its level changes."""
        if not self.first or self._said.get(verdict.name) == verdict.level:
            return
        self._said[verdict.name] = verdict.level
        self.verdicts.append({"step": step, "level": verdict.level, "text": verdict.text})
        with replacing(self.folder / "verdicts.json") as fresh:
            fresh.write_text(json.dumps(self.verdicts, indent=1, ensure_ascii=False), encoding="utf-8")
        self._bar.console.print(
            f"{_MARK[verdict.level]} step {step}: {escape(verdict.text)}", highlight=False, soft_wrap=True
        )

    def _look(self, module: Pretraining, *, knn: bool) -> None:
        assert module.last is not None
        weights = module.weights() if knn and self.readout is not None else None
        if not self.first:
            return
        found = measure(module.last)
        found |= {"loss": float(module.last.loss), "lr": module.rate, "gradient_norm": module.gradient_norm}
        found |= {"samples_per_second": self._speed(module), "epoch": module.config.epochs * module.done / module.total}
        if isinstance(fixed := vars(module.method).get("temperature"), int | float):  # who learns it logs it
            found["temperature"] = float(fixed)
        if weights is not None and self.readout is not None:
            found |= self.readout.measure(module.plain(weights))
            self._keep_best(module, found, weights)
        verdicts = judge(found, module.done, module.total)
        for verdict in verdicts:
            self.say(verdict, module.done)
        self._say_if_well(found, verdicts, module)
        line = {"step": module.done} | {name: _plain(value) for name, value in found.items()}
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        for logger in module.trainer.loggers:
            logger.log_metrics({k: v for k, v in found.items() if isinstance(v, float)}, step=module.done)

    def _say_if_well(self, found: dict[str, float | list[float]], verdicts: list[Verdict], module: Pretraining) -> None:
        """Once a warning is over, and at the end of a run that is well."""
        wrong = {verdict.name for verdict in verdicts if verdict.level in ("warning", "error")}
        if wrong:
            self._wrong |= wrong
        elif self._wrong or module.done == module.total:
            for name in (*self._wrong, "well"):  # so that they are told again
                self._said.pop(name, None)
            self._wrong = set()
            self.say(well(found), module.done)

    def _keep_best(
        self, module: Pretraining, found: dict[str, float | list[float]], weights: dict[str, Tensor]
    ) -> None:
        score = Readout.score(found)
        if score is not None and (self.best is None or score > self.best):
            self.best = score
            state = {"step": module.done, "method": weights, "score": score}
            checkpoint.save(state, self.folder / "checkpoints" / "best.pt")

    def _give_sign(self, module: Pretraining) -> None:
        """A line now and then where the output is no terminal, so that a log is not silent until the end."""
        now, (begun, start) = time.perf_counter(), self._since
        if self.console.is_terminal or self.console.is_jupyter or now < self._signed + _SIGN:
            return
        self._signed = now
        assert module.last is not None
        left = timedelta(seconds=round((module.total - module.done) * (now - start) / max(module.done - begun, 1)))
        line = f"step {module.done:,} of {module.total:,}: loss {float(module.last.loss):.3f}, ETA {left}"
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


@contextmanager
def stopping(on_stop: Callable[[int], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask to stop after the step, and `on_stop` is told which; a second one ends at once.

    Launchers send SIGTERM to a group of processes and to each of them: what comes within a second is the same one.
    """
    asked = math.inf

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if number == signal.SIGINT and asked < math.inf:
            raise KeyboardInterrupt
        if number == signal.SIGTERM and time.monotonic() > asked + _SAME:
            at_once(number)
        if asked == math.inf:
            asked = time.monotonic()
            on_stop(number)

    with handling(handle, signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def ending(tell: Callable[[], None]) -> Iterator[None]:
    """Outside of the steps SIGTERM ends the process with status 0: what is finished is on the disk already.

    Args:
        tell: says how to go on.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends at once
        tell()
        raise SystemExit(0)

    with handling(handle, signal.SIGTERM):
        yield


@contextmanager
def handling(handle: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    """Signals go to `handle` for a while; only the main thread can have them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def at_once(number: int) -> None:
    """End as a process that never heard of the signal would."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
