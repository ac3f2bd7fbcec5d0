"""`--time` and `--steps`: the number of steps is fixed before the first one, stored, and kept by a resumed run."""

from pathlib import Path

import pytest
import torch
import yaml

from nearfar.config import TrainConfig, seconds_in
from nearfar.report.run import read_run
from nearfar.training import time_budget
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts
from tests.training.runs import QUIET, config, stop_after, weights


@pytest.mark.parametrize("time", ["", "soon", "-3m", "0s", "3 weeks"])
def test_a_time_that_is_none_is_refused_with_what_was_seen(time: str) -> None:
    with pytest.raises(ValueError, match=facts(f"time {time!r} 20m")):
        TrainConfig(time=time)


def test_steps_take_the_place_of_epochs_and_cut_an_epoch_short(tmp_path: Path, train_only: None) -> None:
    run = Run(config("simclr", steps=7), tmp_path / "run", resume=False, console=QUIET)
    run.execute()
    record = read_run(tmp_path / "run")
    assert run.setup.total_steps == 7 and record.done == 7 and record.finished
    assert record.epoch == pytest.approx(7 * 16 / len(run.setup.train))


def test_a_run_by_time_stores_its_steps_and_resumes_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    monkeypatch.setattr(time_budget, "LEAST_STEPS", 1)
    monkeypatch.setattr(time_budget, "seconds_per_step", lambda setup: 0.1 * 0.95)
    by_time = config("moco", time="0.65s")
    whole = Run(by_time, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    assert whole.setup.total_steps == 6
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            Run(by_time, tmp_path / "stopped", resume=False, console=QUIET).execute()
    monkeypatch.setattr(time_budget, "seconds_per_step", lambda setup: pytest.fail("a resumed run measures nothing"))
    stored = TrainConfig.from_yaml(tmp_path / "stopped" / "config.yaml")
    assert stored.steps == 6 and stored.time == "0.65s"
    resumed = Run(stored, tmp_path / "stopped", resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_the_trial_of_a_step_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    run = Run(config("simclr"), tmp_path / "run", resume=False, console=QUIET)
    before = weights(run)
    assert 0 < time_budget.seconds_per_step(run.setup) < 60
    for name, x in before.items():
        assert torch.equal(x, weights(run)[name]), name


def test_other_ranks_take_the_number_that_rank_zero_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_time = config("simclr", time="5m")
    stored = yaml.safe_load(by_time.to_yaml()) | {"steps": 123}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(stored))
    monkeypatch.setattr(time_budget, "is_rank_zero", lambda: False)
    run = Run(by_time, tmp_path, resume=False, console=QUIET)
    assert run.setup.total_steps == 123


def test_lengths_of_time() -> None:
    assert [seconds_in(text) for text in ("1h", "2 days", "30", "0.5m")] == [3600, 172800, 30, 30]
