"""Runs whose processes hold the parts of the weights: the weights of one process, and the same files."""

import itertools
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import nearfar.training.fit
from nearfar.config import TrainConfig
from nearfar.distributed.processes import run_in_processes
from nearfar.evaluation.results import Results
from nearfar.model import checkpoint
from nearfar.training.callbacks import TrainingMonitor
from nearfar.training.check_settings import check_supported
from nearfar.training.config import OptimizerConfig
from nearfar.training.errors import NotFiniteError
from nearfar.training.lightning_module import Pretraining
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts, tells
from tests.training.runs import QUIET
from tests.training.test_processes import assert_same

SETTINGS: dict[str, Any] = {
    "data": "waves:100",
    "modality": "series",
    "backbone": "dilated-small",
    "method": "byol",
    "epochs": 1,  # of five steps
    "batch_size": 17,  # 9 and 8 for two processes
    "health_every": 2,
    "checkpoint_every": 1,
    "device": "cpu",
    "options": {"dim": 16, "hidden": 32},
    "optimizer": OptimizerConfig(clip_norm=0.5),
}
FSDP = {"processes": 2, "strategy": "fsdp"}
Job = tuple[str, dict[str, Any], int]  # folder, settings of its own, steps after which it is stopped or 0


def work(job: Job) -> bool:
    """A run, or the rest of one; whether it came to its end with whole weights to go on with."""
    folder, settings, stop = job
    place = Path(folder)

    class Pressed(TrainingMonitor):
        """As if Ctrl-C were pressed in the last process."""

        def on_train_batch_end(self, trainer: Any, pretraining: Any, *rest: Any) -> None:
            last = trainer.global_rank == trainer.world_size - 1
            self.stop_signal = signal.SIGINT if stop and pretraining.done >= stop and last else 0
            super().on_train_batch_end(trainer, pretraining, *rest)

    module = nearfar.training.fit
    module.TrainingMonitor = Pressed  # type: ignore[misc]
    try:
        run = Run(TrainConfig(**(SETTINGS | settings)), place, resume=(place / "checkpoints").exists(), console=QUIET)
        run._evaluate = lambda: Results()  # type: ignore[method-assign]
        run._report = lambda: None  # type: ignore[method-assign]
        run.execute()
    except TrainingStopped:
        assert stop
    finally:
        module.TrainingMonitor = TrainingMonitor  # type: ignore[misc]
    return all(type(p) is torch.nn.Parameter and not p.is_meta for p in run.setup.method.parameters())


def work_together(jobs: list[Job], meeting: str, say: Any) -> list[bool]:
    """The same in processes that Lightning takes for its own, one job after the other."""
    rank, world = dist.get_rank(), dist.get_world_size()
    os.environ["LOCAL_RANK"] = str(rank)
    found = []
    for number, job in enumerate(jobs):
        found.append(work(job))  # which ends the joining of the processes
        store = dist.FileStore(f"{meeting}-{number}", world)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    return found


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same_log(first: Path, second: Path) -> None:
    names = ("step", "loss", "gradient_norm", "ema_distance", "knn", "validation_loss", "validation_rank")
    for a, b in zip(logged(first), logged(second), strict=True):
        found = {name for name in names if a.get(name) is not None}
        assert found == {name for name in names if b.get(name) is not None}
        for name in found:
            assert a[name] == pytest.approx(b[name], rel=1e-3), (a["step"], name)


def assert_same_files(first: Path, second: Path) -> None:
    assert_same(first, second)
    assert_same_log(first, second)
    a, b = (checkpoint.load_newest(folder / "checkpoints")[0] for folder in (first, second))
    assert a.keys() == b.keys() and a["optimizer"]["param_groups"] == b["optimizer"]["param_groups"]
    assert [x.shape for x in a["method"].values()] == [x.shape for x in b["method"].values()]
    for folder in (first, second):
        assert (folder / "checkpoints" / "best.pt").exists() and (folder / "model.safetensors").exists()


def test_a_run_goes_from_parts_to_whole_weights_and_back(tmp_path: Path) -> None:
    """Stopped twice, it ends in the weights and files of a run of one process that was not."""
    whole, mixed = tmp_path / "whole", tmp_path / "mixed"
    work((str(whole), {}, 0))
    jobs = [(str(mixed), FSDP, 2), (str(mixed), {"processes": 2}, 3), (str(mixed), FSDP, 0)]
    ranks = run_in_processes(2, work_together, jobs, str(tmp_path / "meeting"))
    assert ranks[0][-1]  # the first process has whole weights in the end
    assert_same_files(whole, mixed)


@pytest.mark.slow
def test_a_run_goes_from_one_process_to_parts_and_back(tmp_path: Path) -> None:
    whole, mixed = tmp_path / "whole", tmp_path / "mixed"
    work((str(whole), {}, 0))
    work((str(mixed), {}, 2))
    run_in_processes(3, work_together, [(str(mixed), FSDP | {"processes": 3}, 4)], str(tmp_path / "meeting"))
    work((str(mixed), {}, 0))
    assert_same_files(whole, mixed)


@pytest.mark.slow
def test_caching_accumulation_ring_clipping_lars_and_muon_in_parts(tmp_path: Path) -> None:
    lars = OptimizerConfig(name="lars", lr=1.0, clip_norm=0.5)
    muon = OptimizerConfig(name="muon", eps=1e-4)  # a bias before a norm has no gradient: eps keeps rounding small
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of both runs, and of the one in parts
        "cached": (
            {"method": "cpc", "backbone": "cpc-series", "options": {"horizons": 3, "positions": 4}},
            {"micro_batch_size": 4},
        ),
        "ring": ({"method": "simclr", "options": {}, "accumulate_batches": 3}, {"gather": "ring"}),
        "queue": ({"method": "moco", "options": {"queue_size": 40, "dim": 16}, "optimizer": lars}, {}),
        "muon": ({"method": "simclr", "options": {}, "optimizer": muon}, {}),
        "bank": ({"method": "instdisc", "options": {"noise": 16, "dim": 16}, "accumulate_batches": 2}, {}),
    }
    jobs = []
    for name, (settings, more) in cases.items():
        work((str(tmp_path / f"{name}-one"), settings, 0))
        jobs.append((str(tmp_path / f"{name}-two"), settings | more | FSDP, 0))
    run_in_processes(2, work_together, jobs, str(tmp_path / "meeting"))
    for name in cases:
        assert_same(tmp_path / f"{name}-one", tmp_path / f"{name}-two")


@pytest.mark.slow
def test_bfloat16_in_parts_is_that_of_whole_weights(tmp_path: Path) -> None:
    settings = {"precision": "bf16", "processes": 2, "epochs": 1}
    jobs = [(str(tmp_path / s), settings | {"strategy": s}, 0) for s in ("ddp", "fsdp")]
    run_in_processes(2, work_together, jobs, str(tmp_path / "meeting"))
    for a, b in zip(logged(tmp_path / "ddp"), logged(tmp_path / "fsdp"), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-2)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_all_processes(tmp_path: Path) -> None:
    """Before the weights move, with the last good checkpoint named, as with whole weights."""
    said = run_in_processes(2, not_finite, str(tmp_path / "run"))
    assert tells(said[0], "loss finite 1 checkpoint")
    assert said[1] == said[0]
    assert checkpoint.load_newest(tmp_path / "run" / "checkpoints")[0]["step"] == 1


def not_finite(folder: str, say: Any) -> str:
    module, calls = sys.modules[Pretraining.__module__], itertools.count()
    original = module.contrast_shards  # type: ignore[attr-defined]

    def broken(*arguments: Any, **settings: Any) -> Any:
        step = original(*arguments, **settings)
        return replace(step, loss=step.loss * torch.nan) if next(calls) == 1 else step

    module.contrast_shards = broken  # type: ignore[attr-defined]
    os.environ["LOCAL_RANK"] = str(dist.get_rank())
    try:
        work((folder, FSDP, 0))
    except NotFiniteError as error:
        return str(error)
    return "nothing was said"


def test_what_parts_cannot_do_is_refused_in_one_line() -> None:
    config = TrainConfig(strategy="fsdp", processes=2)
    with pytest.raises(ValueError, match=facts("fsdp cpu cuda device mps --strategy ddp")):
        check_supported(config, torch.device("mps"))
    with pytest.raises(ValueError, match=facts("fsdp fp16")):
        check_supported(TrainConfig(strategy="fsdp", processes=2, precision="fp16"), torch.device("cuda"))
    check_supported(config, torch.device("cpu"))
    check_supported(TrainConfig(strategy="fsdp"), torch.device("mps"))  # one process has all of them anyway
