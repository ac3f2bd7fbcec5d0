"""`nearfar plan`: a budget in, a command out."""

import shlex

import pytest

from nearfar.cli import main
from nearfar.cli.train import SHORT, full_flags
from nearfar.config import TrainConfig, completed
from nearfar.settings import build
from nearfar.training.memory_plan import costs_of, measure
from tests.support.facts import tells

SMALL = ["--data", "glyphs:300", "--batch-size", "128"]


def of(**settings: object) -> TrainConfig:
    made: TrainConfig = build(TrainConfig, completed(settings), "test")
    return made


def test_a_plan_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--memory", "64GB", *SMALL, "--seed=3"]) == 0
    out = capsys.readouterr().out
    command = next(line for line in out.splitlines() if line.startswith("run: "))
    assert shlex.split(command)[1:] == ["nearfar", "train", "--data", "glyphs:300", "--seed=3", "--batch-size", "128"]
    assert out.splitlines()[0].endswith("…") and tells(out, "activations 128")
    assert full_flags(shlex.split(command)[3:], SHORT)[-2:] == ["--batch_size", "128"]


@pytest.mark.parametrize("flags", [[], ["--memory", "much"], ["--memory", "0GB"]])
def test_a_budget_that_is_none_is_said_in_a_line(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *flags]) == 1
    error = capsys.readouterr().err
    assert tells(error, "--memory 8GB") and len(error.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("micro", [None, 64])
def test_the_prediction_is_within_a_fifth(micro: int | None) -> None:
    made = of(data="glyphs:1500", batch_size=1024, micro_batch_size=micro)
    assert costs_of(made).peak(1024, micro).total == pytest.approx(measure(made), rel=0.2)
