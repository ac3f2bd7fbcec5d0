"""Runs of several processes, started as a user starts them: one set of files, and the weights of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nearfar.config import TrainConfig
from nearfar.model.load import load
from nearfar.training._lightning import lightning
from nearfar.training.errors import ProcessLostError
from nearfar.training.processes import is_rank_zero, with_launched_processes
from nearfar.training.run import Run
from tests.support.facts import facts, tells
from tests.training.runs import QUIET, config

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {
    "data": "waves:120",
    "modality": "series",
    "backbone": "dilated-small",
    "method": "simclr",
    "epochs": 1,
    "batch_size": 17,  # of which no number of processes has equal shares
    "health_every": 2,
    "checkpoint_every": 2,
    "device": "cpu",
    "embedding": "whitened",
}


def train(folder: Path, *launcher: str, stop_after: int = 0, **settings: Any) -> str:
    """A run in processes of its own; what it said."""
    given = settings if (folder / "checkpoints").exists() else SETTINGS | settings
    command = [*(launcher or (sys.executable,)), "-m", "tests.training.worker"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(folder), json.dumps(given), str(stop_after)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def weights(folder: Path) -> dict[str, Tensor]:
    newest = sorted((folder / "checkpoints").glob("step-*.pt"))[-1]
    return torch.load(newest, weights_only=True)["method"]


def assert_same(first: Path, second: Path) -> None:
    a, b = weights(first), weights(second)
    for name, x in a.items():
        torch.testing.assert_close(b[name], x, rtol=1e-3, atol=1e-5, msg=lambda words, name=name: f"{name}: {words}")


@pytest.mark.slow
def test_two_processes_end_in_the_weights_of_one(tmp_path: Path) -> None:
    train(tmp_path / "one")
    said = train(tmp_path / "two", processes=2)
    assert_same(tmp_path / "one", tmp_path / "two")
    assert said.count("views:") == 1 and "Traceback" not in said  # one process speaks
    lines = [json.loads(line) for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()]
    alone = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [line["step"] for line in alone]
    for a, b in zip(lines, alone, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4) and a["ceiling"] == pytest.approx(b["ceiling"])

    alone_transform, transform = (load(tmp_path / name).transform for name in ("one", "two"))
    assert alone_transform is not None and transform is not None
    torch.testing.assert_close(transform.state_dict(), alone_transform.state_dict(), rtol=1e-2, atol=1e-3)

    train(tmp_path / "ring", processes=2, gather="ring")
    assert_same(tmp_path / "one", tmp_path / "ring")


@pytest.mark.slow
def test_many_views_on_two_processes_end_in_the_weights_of_one(tmp_path: Path) -> None:
    views = {"views": {"count": 3, "local": 2}}
    train(tmp_path / "one", **views)
    for gather in ("gather", "ring"):
        train(tmp_path / gather, processes=2, gather=gather, **views)
        assert_same(tmp_path / "one", tmp_path / gather)


@pytest.mark.slow
def test_gradient_caching_on_two_processes_is_one_process_without_it(tmp_path: Path) -> None:
    cpc = {"method": "cpc", "backbone": "cpc-series", "options": {"horizons": 3, "positions": 4}}  # no batch-norm in it
    train(tmp_path / "one", **cpc)
    train(tmp_path / "two", processes=2, micro_batch_size=4, **cpc)  # shares of 9 and 8: three parts each
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    """The last process alone is asked to stop; all stop after the same step."""
    moco = {"method": "moco", "options": {"queue_size": 40, "dim": 16}}
    train(tmp_path / "whole", **moco)
    said = train(tmp_path / "parts", processes=2, stop_after=3, **moco)
    assert tells(said, "3 6")
    train(tmp_path / "parts", processes=3)
    assert_same(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.slow
def test_torchrun_is_recognised(tmp_path: Path) -> None:
    train(tmp_path / "one")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    train(tmp_path / "two", *torchrun)
    assert TrainConfig.from_yaml(tmp_path / "two" / "config.yaml").processes == 2
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_script_gets_the_same_encoder_in_every_process(strategy: str, tmp_path: Path) -> None:
    program = (
        "import sys, json, nearfar\n"
        "encoder = nearfar.train(out=sys.argv[1], processes=2, **json.loads(sys.argv[2]))\n"
        "print('DIGEST', encoder.digest(), encoder.training, encoder.device)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(program)
    settings = json.dumps(SETTINGS | {"strategy": strategy})
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    words += [str(tmp_path / "run"), settings]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("DIGEST")]
    assert len(found) == 2 and len(set(found)) == 1 and found[0].endswith("False cpu"), found


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({}, True),
        ({"LOCAL_RANK": "0"}, True),
        ({"LOCAL_RANK": "1"}, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"TORCHELASTIC_RUN_ID": "1", "RANK": "8", "LOCAL_RANK": "0"}, False),
        ({"RANK": "8"}, True),  # left over from something else
    ],
)
def test_who_writes(environment: dict[str, str], first: bool) -> None:
    assert is_rank_zero(environment) == first


@pytest.mark.parametrize("first", [True, False])
def test_a_process_that_is_lost_is_told_by_the_first(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As gloo says it to those that are left; the long form kills one of four."""

    def fit(*_: object, **__: object) -> None:
        raise RuntimeError("[/x/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1234")

    monkeypatch.setattr(lightning.Trainer, "fit", fit)
    rank_zero_only = lightning.pytorch.utilities.rank_zero_only
    monkeypatch.setattr(rank_zero_only, "rank", rank_zero_only.rank)  # a trainer sets it: put back for tests to come
    monkeypatch.setenv("LOCAL_RANK", "0" if first else "1")
    run = Run(config("simclr", processes=2), tmp_path / "run", resume=False, console=QUIET)
    with pytest.raises(ProcessLostError, match="--processes N"):
        run.execute()


def test_ranks_of_another_launcher_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "host"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=facts("RANK 1 WORLD_SIZE 2 torchrun")):
        with_launched_processes(TrainConfig())


def test_slurm_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_JOB_NAME": "pretraining"}.items():
        monkeypatch.setenv(name, value)
    launched = with_launched_processes(TrainConfig())
    assert (launched.processes, launched.nodes) == (4, 2)
    assert is_rank_zero({"SLURM_PROCID": "0"}) and not is_rank_zero({"SLURM_PROCID": "3", "LOCAL_RANK": "0"})


def test_what_cannot_be_shared_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=facts("batch_size 3 4")):
        TrainConfig(batch_size=3, processes=2, nodes=2)
    with pytest.raises(ValueError, match=facts("processes 0 1")):
        TrainConfig(processes=0)
