"""One run from configuration to verdict: data, method, training, evaluation, report, all in one folder."""

import importlib.util
import json
import logging
import platform
import shlex
import signal
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException
from rich.console import Console

import nearfar
from nearfar.config import TrainConfig, completed
from nearfar.data.cache import replacing
from nearfar.data.dataset import counted, how_many
from nearfar.data.fingerprint import fingerprint
from nearfar.data.loader import Loader
from nearfar.devices import find_device
from nearfar.distributed.processes import check_ring
from nearfar.evaluation.evaluate_run import evaluate_run
from nearfar.evaluation.leakage import training_notes
from nearfar.evaluation.results import Results
from nearfar.evaluation.splits import named, write_splits
from nearfar.methods import find_method
from nearfar.methods.advice import Verdict
from nearfar.modalities import make_modality
from nearfar.model.card import make_card, read_card
from nearfar.model.encoder import Encoder
from nearfar.model.save import CARD, write_model
from nearfar.report.figures import FIGURES, draw_curves
from nearfar.report.page import write_report
from nearfar.report.refresh import RESULTS, save_samples
from nearfar.training import checkpoint
from nearfar.training.advice import advise, labels_hint
from nearfar.training.build_method import build_method, untrained_encoder
from nearfar.training.callbacks import Watch, stopping
from nearfar.training.check_data import check_given
from nearfar.training.lightning_module import NotFiniteError, Pretraining, Steps
from nearfar.training.online_evaluation import Readout
from nearfar.training.processes import (
    as_launched,
    is_first,
    is_lost,
    lost,
    meeting_point,
    part_ways,
    shares_weights,
    strategy,
)
from nearfar.training.report_samples import two_views
from nearfar.training.run_folder import discard

MAY_CHANGE = ("epochs", "processes", "nodes", "strategy")  # of a run that is resumed
_BANK = 4000  # training samples the online k-NN looks among
_PRECISION = {"32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


class Run:
    """A run folder in the making.

    Args:
        config: what the run is a function of.
        folder: where it writes.
        resume: go on from the newest checkpoint in the folder.
        console: where it speaks.
    """

    def __init__(self, config: TrainConfig, folder: Path, *, resume: bool, console: Console) -> None:
        self.first = is_first()  # of several processes: it alone writes and speaks
        self.fresh = not folder.exists()
        check_given(config)
        config = as_launched(config)
        self.config, self.folder, self.console = config, folder, console if self.first else Console(quiet=True)
        self.device = find_device(config.device)
        check_possible(config, self.device)
        self.modality = make_modality(config)
        build_method(config, samples=1000)  # what cannot be built is told before the data are read
        splits = self.splits = self.modality.split()
        for note in splits.notes:
            self._tell(note)
        self.train, self.validation, self.test = splits.train, splits.validation, splits.test
        assert splits.everything is not None
        config = self.config = self.modality.config = self._with_batches(self.modality.fit(splits.everything))
        self._check_samples()
        self.loader = Loader(
            len(self.train), config.batch_size, config.seed, parts=self.train.shards, window=config.data.shuffle_window
        )
        self.steps_per_epoch = max(1, len(self.loader) // config.accumulate_batches)
        self.total = config.epochs * len(self.loader) // config.accumulate_batches
        if self.total < 1:
            raise ValueError(
                f"{config.epochs} epochs of {len(self.loader)} batches make no optimiser step of "
                f"{config.accumulate_batches} batches; lower --accumulate-batches"
            )
        self.method = build_method(config, len(self.train))
        if config.gather == "ring":
            check_ring(self.method)
        self.fingerprint = fingerprint(self.train)
        self.state = self._restore() if resume else None
        self._listed = 0  # of what could not be used

    # What a run is made of

    def _with_batches(self, config: TrainConfig) -> TrainConfig:
        """A batch of the usual size that the data do not fill is made smaller; one that was asked for is not."""
        given = {"data": config.data.path, "method": config.method, "modality": config.modality}
        usual, samples = completed(given).get("batch_size", TrainConfig.batch_size), len(self.train)
        fit = 1 << (samples // 2).bit_length() >> 1  # two batches or more, of a power of two
        if config.batch_size != usual or samples >= usual or fit < max(8, 2 * config.processes * config.nodes):
            return config
        self._tell(f"{samples:,} samples do not fill a batch of {usual}: it has {fit}; --batch-size says otherwise")
        return replace(config, batch_size=fit)

    def _check_samples(self) -> None:
        if len(self.train) < 2:
            raise ValueError(
                f"{self.config.data.path} has {counted(len(self.train), 'sample')} to learn from, expected at least 2, "
                "and some hundreds to learn anything: give more data"
            )
        if find_method(self.config.method).needs_labels and self.train.labels is None:
            hint = labels_hint(self.config) or "give labelled data, or another --method, such as simclr"
            raise ValueError(f"{self.config.method} learns from labels, and {self.config.data.path} has none; {hint}")

    def _readout(self) -> Readout | None:
        if self.validation is None:
            return None
        bank = None
        if self.train.labels is not None:
            bank = self.train.subset(torch.linspace(0, len(self.train) - 1, min(_BANK, len(self.train))).long())
        return Readout(self.validation, bank, self.modality)

    def _restore(self) -> dict[str, Any] | None:
        """The state to go on from; None where the run was killed before its first checkpoint."""
        if not any((self.folder / "checkpoints").glob("step-*")) and not (self.folder / CARD).exists():
            self.console.print("there is no checkpoint yet; the run begins at step 0")
            for name in ("metrics.jsonl", "verdicts.json"):
                (self.folder / name).unlink(missing_ok=True)
            return None
        state, path, broken = checkpoint.load_newest(self.folder / "checkpoints")
        for file in broken:
            self.console.print(f"[yellow]{file.name} cannot be read; going on from {path.name}[/]")
        checkpoint.set_aside(broken)
        if state.get("data", self.fingerprint) != self.fingerprint:
            raise ValueError(
                f"the data of {self.folder} have changed since {path.name} was written: {self.config.data.path} now "
                f"has {len(self.train):,} training samples that are not the same ones; start the run anew"
            )
        self._tell_changed_settings(state, path)
        if state["step"] > self.total:
            raise ValueError(
                f"{self.folder} has made {state['step']} steps, more than the {self.total} that it would have now; "
                "leave --epochs out, or give more of them"
            )
        self.method.load_state_dict(state["method"])
        self.console.print(f"resuming at step {state['step']} of {self.total}, from {path.name}")
        return state

    def _tell_changed_settings(self, state: dict[str, Any], path: Path) -> None:
        """Name the settings that are no longer those of the checkpoint, if config.yaml was edited."""
        before = json.loads(state["config"])
        now = json.loads(json.dumps(asdict(self.config)))
        for key in MAY_CHANGE:
            before.pop(key, None), now.pop(key, None)
        if changed := checkpoint.changed_keys(before, now):
            self._tell(
                f"config.yaml has changed since {path.name} was written, and the run goes on with the new settings: "
                + "; ".join(changed)
            )

    # What it does

    def go(self) -> Results | None:
        """Train, evaluate, report. Returns the evaluation; None where the run was stopped before its end."""
        if not self.first:
            self._fit()
            return Results()  # also where all were stopped: the first process says so
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / "config.yaml") as fresh:  # whole or not at all: others may be reading it
            fresh.write_text(self.config.to_yaml(), encoding="utf-8")
        (self.folder / "environment.json").write_text(json.dumps(environment(self.device), indent=1))
        write_splits(self.folder, self.modality, self.splits)
        self._list_skipped()
        self._tell(self.modality.show(self.train, self.folder))
        try:
            finished = self._fit()
        except (Exception, SystemExit) as error:  # a loss that is not finite, SIGTERM, a disk: every run has its page
            if self._in_vain(error):
                discard(self.folder)
            else:
                self._report()
            raise
        self._list_skipped()  # streamed files show only when they are read that they cannot be
        if not finished:
            self._report()
            return None
        card = make_card(
            self.config,
            self.modality.card(),
            temperature=getattr(self.method, "temperature", None),
            data={"fingerprint": self.fingerprint, "samples": len(self.train)},
        )
        write_model(self.method.encoder.state_dict(), card, self.folder)
        try:
            return self._evaluate()
        finally:
            self._report()

    def _in_vain(self, error: BaseException) -> bool:
        """Whether a setting or one's own code failed at the first step of a new run: there is nothing to go on with."""
        alone = self.config.processes * self.config.nodes == 1
        mendable = isinstance(error, Exception) and not isinstance(error, OSError | NotFiniteError)
        return self.fresh and alone and mendable and not (self.folder / "metrics.jsonl").exists()

    def _report(self) -> None:
        """Write the page; where it cannot be written, as on a full disk, that costs nothing else."""
        try:
            self._tell(f"report: {write_report(self.folder)}")
        except OSError as error:
            self._tell(f"no report was written ({error}); once that is mended: nearfar report {self.folder}")

    def _fit(self) -> bool:
        """Returns whether the run came to its end."""
        watch = Watch(self.folder, self._readout(), self.steps_per_epoch, self.console, self.fingerprint)
        labels = self.train.labels if self.method.needs_labels else None
        module = Pretraining(
            self.method,
            self.config,
            self.modality,
            self.train,
            total=self.total,
            ids=self.modality.ids(self.train),
            labels=labels,
            checkpoint=self._newest,
        )
        if self.state is not None:
            watch.resume(self.state, module)
            self.state = None  # whole weights, which no one needs any longer
        else:
            samples, groups = len(self.train), self.train.groups
            for verdict in advise(
                self.config, self.method, samples=samples, total=self.total, ids=module.ids, groups=groups
            ):
                watch.say(verdict, 0)
        if self.config.channels_last and not shares_weights(self.config):  # which are cut in the order of their rows
            self.method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # copies of the encoder, too
        if module.done >= self.total:
            return True
        first = module.done * self.config.accumulate_batches
        ahead = 1 if self.config.micro_batch_size else 2  # where memory counts, and a step is long
        steps = Steps(self.train, self.loader, first, self.total * self.config.accumulate_batches, ahead)
        if self.config.nodes == 1 and (others := self.config.processes - 1) > 0:
            self._tell(f"waiting for {others} other process{'es' * (others > 1)} to start and open the data")
        trainer = self._trainer(watch, self.total - module.done)

        if self.config.nodes > 1:
            self._tell(f"waiting for the processes of {self.config.nodes} machines, at {meeting_point()}")
        asked = 0

        def stop(number: int) -> None:
            nonlocal asked
            watch.stopped, asked = True, number
            self.console.print("stopping after this step")

        try:
            with stopping(stop):
                trainer.fit(module, train_dataloaders=steps)
            part_ways()
        except SIGTERMException:  # Lightning's way to end; the step before it is saved
            watch.stopped = True
        except NotFiniteError as error:
            watch.say(Verdict("error", "not_finite", str(error)), module.done)
            if not self.first:
                raise SystemExit(1) from error  # the first process says it
            raise
        except Exception as error:  # of loading, of the disk, of the device: the command says which in its last line
            if module.done:
                self._tell(f"ended at step {module.done} of {self.total}; the last good checkpoint is {self._newest()}")
            if self.config.processes * self.config.nodes > 1 and is_lost(error):
                raise (lost(self.folder) if self.first else SystemExit(1)) from error  # the first process says it
            raise
        if module.done < self.total:
            folder = shlex.quote(str(self.folder))
            self._tell(f"stopped at step {module.done} of {self.total}; go on with: nearfar train --resume {folder}")
            if asked == signal.SIGTERM:
                raise SystemExit(0)  # not an error: a scheduler that wants the machine back starts the run again
            return False
        if self.first:
            self.method = module.plain(watch.final)
        return True

    def _trainer(self, watch: Watch, steps: int) -> lightning.Trainer:
        logger = None
        if self.config.tensorboard and self.first:
            from lightning.pytorch.loggers import TensorBoardLogger

            done = self.total - steps
            # Of a resumed run, what was logged after its checkpoint is forgotten, as in metrics.jsonl.
            logger = TensorBoardLogger(
                self.folder, name="", version="tensorboard", purge_step=done + 1 if done else None
            )
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="lightning.*")
        return lightning.Trainer(
            accelerator="gpu" if self.device.type == "cuda" else self.device.type,
            devices=self.config.processes,
            num_nodes=self.config.nodes,
            strategy=strategy(self.config, self.device.type, idle=self.method.idle),
            precision=_PRECISION[self.config.precision],  # type: ignore[arg-type]
            max_steps=steps,
            accumulate_grad_batches=self.config.accumulate_batches,
            gradient_clip_val=self.config.optimizer.clip_norm,
            callbacks=[watch],
            logger=logger or False,
            default_root_dir=self.folder,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )

    def _evaluate(self) -> Results:
        start, config = time.perf_counter(), self.config
        card = read_card(self.folder / CARD)
        encoder = Encoder(self.method.encoder.to(self.device), self.modality, card).eval()
        test, split = self.splits.evaluated or (self.train, "training")
        name = named(config.data.path, config.data.test if self.test is not None else None)
        results = evaluate_run(
            {"trained": encoder},
            replace(self.splits, notes=[*self.splits.notes, *training_notes(config, None, None, split)]),
            self.modality.run_protocols(test),
            data=name,
            untrained=Encoder(untrained_encoder(config), self.modality, card).to(self.device),
            seeds=[config.seed],
        )
        if test.labels is None and (hint := labels_hint(config)) is not None:
            results.notes.append(hint)
        results.save(self.folder / RESULTS)
        if results.rows:
            results.save_curves(self.folder / FIGURES)
            own = {what: found for what, found in results.curves.items() if what[0] == "trained"}
            draw_curves(replace(results, curves=own), self.folder / FIGURES)
            self.console.print(results.table())
            self.console.print(f"evaluated in {time.perf_counter() - start:.0f} s on {len(test):,} {split} samples")
        else:
            self._tell("not evaluated: " + "; ".join(results.notes))
        problem = save_samples(
            self.folder,
            encoder,
            test,
            ids=self.modality.ids(test),
            positives=two_views(self.method, self.modality, test),
            data=name,
            split=split,
            seed=config.seed,
        )
        if problem is not None:
            self._tell(problem)
        return results

    def _tell(self, line: str) -> None:
        """A line with a path in it, which stays one line, so that it can be copied."""
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)

    def _newest(self) -> str:
        found = checkpoint.numbered(self.folder / "checkpoints")
        return str(found[-1]) if found else "none yet"

    def _list_skipped(self) -> None:
        """Name what could not be used (files, rows, captions, texts), in the run folder."""
        skipped = list(self.train.skipped) + list(self.test.skipped if self.test is not None else [])
        if len(skipped) > self._listed:
            self._listed = len(skipped)
            for many in [s for s in skipped if s.samples != 1][:5]:  # shards and folders
                self._tell(f"{many.path}: {many.reason}")
            path = self.folder / "skipped.txt"
            path.write_text("".join(f"{s.path}\t{s.reason}\n" for s in skipped), encoding="utf-8")
            what = "sample, caption or text" if (count := how_many(skipped)) == "1" else "samples, captions or texts"
            self._tell(f"{count} {what} could not be used; {path} says why")


def check_possible(config: TrainConfig, device: torch.device) -> None:
    """Refuse now what would fail, or silently be something else, once the data are read."""
    if config.precision == "fp16" and device.type == "cpu":
        raise ValueError(
            "precision fp16 needs a GPU: there is no float16 training on a CPU; set --precision bf16 or 32"
        )
    if shares_weights(config):
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"strategy fsdp needs cpu or cuda, and the device is {device.type}; set --strategy ddp")
        if config.precision == "fp16":
            raise ValueError("strategy fsdp and precision fp16 were not tested together; set --precision bf16 or 32")
        if torch.__version__ < (2, 7):  # type: ignore[operator]
            raise ValueError(f"strategy fsdp needs torch 2.7 or newer, and this is {torch.__version__}; update torch")
    if config.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise ModuleNotFoundError(
            "--tensorboard needs the package tensorboard, which is not installed: pip install 'nearfar[tensorboard]'"
        )


def environment(device: torch.device) -> dict[str, object]:
    """What a result also depends on."""
    return {
        "nearfar": nearfar.__version__,
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(device),
        "threads": torch.get_num_threads(),
    }
