"""One run from configuration to verdict: data, method, training, evaluation, report, all in one folder."""

import importlib.util
import json
import logging
import platform
import shlex
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException
from rich.console import Console
from torch import Tensor

import nearfar
from nearfar.config import TrainConfig, completed
from nearfar.data.cache import replacing
from nearfar.data.dataset import Dataset, counted, how_many
from nearfar.data.fingerprint import fingerprint
from nearfar.data.groups import held_out
from nearfar.data.loader import Loader
from nearfar.data.sources import own_parts
from nearfar.distributed.processes import check_ring
from nearfar.evaluation.baselines import calibrated
from nearfar.evaluation.leakage import supervised
from nearfar.evaluation.results import Results
from nearfar.evaluation.results_io import discard
from nearfar.evaluation.runner import evaluate
from nearfar.evaluation.splits import named
from nearfar.methods import find_method
from nearfar.methods.advice import Verdict
from nearfar.modalities import modality_of, settled
from nearfar.modalities.image.data.opening import has_splits
from nearfar.model.card import read_card
from nearfar.model.encoder import CARD, save_model, with_card
from nearfar.report.figures import FIGURES, draw_curves
from nearfar.report.page import write_report
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
from nearfar.training.report_samples import look, two_views

_VALIDATION = 2000  # samples held out, at most
_FEWEST = 8  # held-out samples that say anything
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
        config = as_launched(settled(config))
        self.config, self.folder, self.console = config, folder, console if self.first else Console(quiet=True)
        self.device = find_device(config.device)
        check_possible(config, self.device)
        config = self.config = self._with_own_test(config)
        self.modality = modality_of(config)
        build_method(config, samples=_VALIDATION)  # what cannot be built is told before the data are read
        self.train, self.validation, self.test = self._open()
        self._check_samples()
        config = self.config = self._with_batches(config)
        parts = getattr(self.train, "parts", None)
        self.loader = Loader(
            len(self.train), config.batch_size, config.seed, parts=parts, window=config.sources.shuffle
        )
        self.steps_per_epoch = max(1, len(self.loader) // config.accumulate)
        self.total = config.epochs * len(self.loader) // config.accumulate
        if self.total < 1:
            raise ValueError(
                f"{config.epochs} epochs of {len(self.loader)} batches make no optimiser step of "
                f"{config.accumulate} batches; lower --accumulate"
            )
        self.method = build_method(config, len(self.train))
        if config.gather == "ring":
            check_ring(self.method)
        self.fingerprint = fingerprint(self.train)
        self.state = self._restore() if resume else None
        self._listed = 0  # of what could not be used

    # What a run is made of

    def _with_own_test(self, config: TrainConfig) -> TrainConfig:
        """Of a folder with train/ and test/ the one is learned from, and the other is kept for the test."""
        sources, parts = config.sources, own_parts(config.data)
        if parts is None or sources.held_out is not None:
            return config
        train, test = (str(Path(config.data) / part) for part in parts)
        both = f"{config.data} has {parts[0]}/ and {parts[1]}/"
        if sources.groups is not None:  # whose names are of the whole
            self._tell(f"{both}, and it is learned from both, as --sources.groups are of both")
            return config
        test = sources.test or test
        self._tell(f"{both}: it is learned from {train} and tested on {test}")
        return replace(config, data=train, sources=replace(sources, test=test))

    def _with_batches(self, config: TrainConfig) -> TrainConfig:
        """A batch of the usual size that the data do not fill is made smaller; one that was asked for is not."""
        given = {"data": config.data, "method": config.method, "modality": config.modality}
        usual, samples = completed(given).get("batch_size", TrainConfig.batch_size), len(self.train)
        fit = 1 << (samples // 2).bit_length() >> 1  # two batches or more, of a power of two
        if config.batch_size != usual or samples >= usual or fit < max(8, 2 * config.processes * config.nodes):
            return config
        self._tell(f"{samples:,} samples do not fill a batch of {usual}: it has {fit}; --batch-size says otherwise")
        return replace(config, batch_size=fit)

    def _open(self) -> tuple[Dataset, Dataset | None, Dataset | None]:
        """Training samples, the validation samples held out of them, and the test samples."""
        config, sources = self.config, self.config.sources
        everything = self.modality.open(config.data, split=sources.kept, groups=sources.groups)
        test = self.modality.open(sources.test, split="test") if sources.test else None
        if sources.held_out is not None:
            test = self.modality.open(config.data, split=sources.held_out)
        if sources.test is None and has_splits(config.data):
            test = self.modality.open(config.data, split="test")
        held = min(_VALIDATION, int(sources.validation * len(everything)))
        if held < _FEWEST:
            return everything, None, test
        order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(config.seed))
        out = held_out(everything.groups, order, held)  # (N,)
        if int(out.sum()) < _FEWEST:  # one group is almost everything
            return everything, None, test
        return everything.subset((~out).nonzero()[:, 0]), everything.subset(out.nonzero()[:, 0]), test

    def _check_samples(self) -> None:
        if len(self.train) < 2:
            raise ValueError(
                f"{self.config.data} has {counted(len(self.train), 'sample')} to learn from, expected at least 2, and "
                "some hundreds to learn anything: give more data"
            )
        if find_method(self.config.method).needs_labels and self.train.labels is None:
            hint = labels_hint(self.config) or "give labelled data, or another --method, such as simclr"
            raise ValueError(f"{self.config.method} learns from labels, and {self.config.data} has none; {hint}")

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
                f"the data of {self.folder} have changed since {path.name} was written: {self.config.data} now has "
                f"{len(self.train):,} training samples that are not the same ones; start the run anew"
            )
        if state["step"] > self.total:
            raise ValueError(
                f"{self.folder} has made {state['step']} steps, more than the {self.total} that it would have now; "
                "leave --epochs out, or give more of them"
            )
        self.method.load_state_dict(state["method"])
        self.console.print(f"resuming at step {state['step']} of {self.total}, from {path.name}")
        return state

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
        save_model(
            self.method.encoder,
            self.config,
            self.modality.card(),
            self.folder,
            temperature=getattr(self.method, "temperature", None),
            data={"fingerprint": self.fingerprint, "samples": len(self.train)},
        )
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
        first = module.done * self.config.accumulate
        ahead = 1 if self.config.micro_batch else 2  # where memory counts, and a step is long
        steps = Steps(self.train, self.loader, first, self.total * self.config.accumulate, ahead)
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
            accumulate_grad_batches=self.config.accumulate,
            gradient_clip_val=self.config.optimizer.clip,
            callbacks=[watch],
            logger=logger or False,
            default_root_dir=self.folder,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )

    def _evaluate(self) -> Results:
        test, split = (self.test, "test") if self.test is not None else (self.validation, "validation")
        prepare = self.modality.preparation
        card = read_card(self.folder / CARD)
        encoder = with_card(self.method.encoder.to(self.device), card, self.folder).eval()
        start = time.perf_counter()
        name = named(self.config.data, self.config.sources.test if self.test is not None else None)
        if test is None:
            few = f"nothing is held out of {len(self.train):,} samples; give other ones with --sources.test"
            results, test, split = Results([], [few]), self.train, "training"
        else:
            fresh = with_card(untrained_encoder(self.config), card, self.folder)
            encoders: dict[str, Callable[[Tensor], Tensor]] = {
                "trained": encoder,
                "untrained": calibrated(fresh.to(self.device), self.train, prepare),
            }
            if (baseline := self.modality.baseline(self.train, test)) is not None:
                encoders["raw"] = baseline
            results = evaluate(
                encoders,
                self.train,
                test,
                prepare=prepare,
                raw=self.modality.raw,
                protocols=self.modality.protocols,
                seed=self.config.seed,
                data=name,
                split=split,
            )
            if self.method.needs_labels:
                results.notes.append(supervised(self.config))
            if test.labels is None and (hint := labels_hint(self.config)) is not None:
                results.notes.append(hint)
        results.save(self.folder / "evaluation.json")
        if results.rows:
            results.save_curves(self.folder / FIGURES)
            own = {what: found for what, found in results.curves.items() if what[0] == "trained"}
            draw_curves(replace(results, curves=own), self.folder / FIGURES)
            self.console.print(results.table())
            self.console.print(f"evaluated in {time.perf_counter() - start:.0f} s on {len(test):,} {split} samples")
        else:
            self._tell("not evaluated: " + "; ".join(results.notes))
        problem = look(
            self.folder,
            encoder,
            test,
            prepare=prepare,
            pictures=self.modality.pictures,
            ids=self.modality.ids(test),
            positives=two_views(self.method, self.modality, test),
            data=name,
            split=split,
            seed=self.config.seed,
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


def find_device(name: str) -> torch.device:
    """The device of that name, or for "auto" the best there is."""
    if name != "auto":
        try:
            torch.zeros(1, device=name)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = " ".join(str(error).split()).partition(". ")[0]
            if "device type at start of device string" in reason:
                reason = "torch knows none of that name"  # and would list twenty that are not here either
            raise ValueError(f"there is no device {name!r} here ({reason}); leave it out, or use cpu") from None
        return torch.device(name)
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator or torch.device("cpu")
