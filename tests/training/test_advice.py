"""What is said before the first step of a run that the papers' settings do not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nearfar.config import TrainConfig, completed
from nearfar.data.config import DataConfig
from nearfar.methods import METHODS
from nearfar.methods.advice import Verdict
from nearfar.settings import build
from nearfar.training.advice import advise
from nearfar.training.build_method import build_method
from nearfar.training.config import OptimizerConfig
from nearfar.training.run import Run
from tests.support.facts import tells
from tests.training.runs import QUIET, config


def said(method: str, *, samples: int = 300, batch: int = 64, epochs: int = 20, **options: Any) -> dict[str, Verdict]:
    torch.manual_seed(0)
    settings = TrainConfig(method=method, batch_size=batch, epochs=epochs)
    made = METHODS[method](nn.Linear(512, 512), features=512, samples=samples, **options)
    total = epochs * (samples // batch)
    return {verdict.name: verdict for verdict in advise(settings, made, samples=samples, total=total)}


LONG = {"samples": 100_000, "batch": 256, "epochs": 200}


@pytest.mark.parametrize("method", ["simclr", "moco", "byol", "moco_v3", "instdisc", "nnclr", "supcon"])
def test_the_papers_settings_are_left_in_peace_on_a_long_run(method: str) -> None:
    assert not {name for name, verdict in said(method, **LONG).items() if verdict.level == "warning"}


def test_a_run_of_few_steps_is_told_how_many_epochs_to_set() -> None:
    text = said("simclr", batch=256)["few_steps"].text
    assert tells(text, "20 epochs 300 20 steps")
    assert "--epochs 1000" in text and "--batch-size 64" in text
    assert "few_steps" not in said("simclr", epochs=200)


@pytest.mark.parametrize(("method", "left"), [("moco", 79), ("byol", 62), ("moco_v3", 30)])
def test_a_momentum_that_keeps_the_untrained_start_is_named_with_one_that_does_not(method: str, left: int) -> None:
    text = said(method, epochs=60)["momentum"].text
    assert tells(text, f"{left}% momentum untrained 240")
    advised = float(text.split("--options.momentum ")[1].split(",")[0])
    assert 0 < advised < 1
    assert "momentum" not in said(method, epochs=60, momentum=advised)


def test_a_column_that_takes_the_negatives_away_is_named_and_can_be_turned_off(tmp_path: Path) -> None:
    table = tmp_path / "sentences.csv"
    rows = "".join(f"sentence number {i} of the table,{'cats' if i % 2 else 'dogs'}\n" for i in range(60))
    table.write_text("text,Group\n" + rows)

    def told(column: str | None) -> list[str]:
        settings = config("simcse", data=DataConfig(str(table), group_column=column), backbone="text-micro")
        made = Run(settings, tmp_path / "run", resume=False, console=QUIET)
        ids, groups = made.setup.modality.ids(made.setup.train), made.setup.train.groups
        found = advise(settings, made.setup.method, samples=len(made.setup.train), total=1000, ids=ids, groups=groups)
        return [verdict.text for verdict in found if verdict.name == "negatives"]

    (text,) = told(None)
    assert text.startswith(("49%", "50%"))
    assert tells(text, f"column 'Group' {table}")
    assert '--data.group_column ""' in text
    assert told("") == []


def test_groups_of_a_file_and_equal_captions_are_named() -> None:
    same, apart = torch.zeros(20, dtype=torch.long), torch.arange(20)
    made = METHODS["simclr"](nn.Linear(8, 8), features=8, samples=20)
    grouped = TrainConfig(data=DataConfig(groups_file="doctor/groups.csv"))
    for settings, groups, words in (
        (grouped, same, "doctor/groups.csv"),
        (TrainConfig(), None, "caption text"),
        (TrainConfig(), apart, "caption text"),
    ):
        found = advise(settings, made, samples=20, total=1000, ids=same, groups=groups)
        assert tells(next(verdict.text for verdict in found if verdict.name == "negatives"), words)


def test_advice_on_a_run_that_is_too_short_is_for_the_length_advised() -> None:
    found = said("moco")  # 80 steps
    assert "--epochs 250" in found["few_steps"].text and tells(found["momentum"].text, "even 1,000 steps would")
    assert "end of the run" not in found["momentum"].text and "train longer" not in found["momentum"].text


@pytest.mark.parametrize("method", ["moco", "nnclr"])
def test_a_queue_larger_than_the_data_is_named_with_a_size_that_is_not(method: str) -> None:
    text = said(method)["queue_size"].text
    assert tells(text, "300")
    advised = int(text.split("--options.queue_size ")[1])
    assert 64 <= advised <= 300
    assert "queue_size" not in said(method, queue_size=advised)
    filled = said(method, epochs=60)["queue_size"].text  # 240 steps of 64
    assert tells(filled, "15,360") and "several" not in filled
    assert "several" in said(method, epochs=60, queue_size=500)["queue_size"].text


def test_instdiscs_normaliser_is_to_be_held_later_where_batches_are_few() -> None:
    text = said("instdisc", epochs=60)["held_after"].text
    assert "--options.held_after 240" in text and "--options.noise 150" in text
    assert "held_after" not in said("instdisc", epochs=60, held_after=240)


def test_heads_that_dwarf_the_encoder_are_noted() -> None:
    assert said("barlow_twins")["heads"].level == "note"
    assert "heads" not in said("barlow_twins", dim=256, hidden=256)


def test_a_run_says_it_once_and_keeps_it(tmp_path: Path, train_only: None) -> None:
    run = Run(config("byol"), tmp_path, resume=False, console=QUIET)
    run.execute()
    verdicts = json.loads((tmp_path / "verdicts.json").read_text())
    told = [verdict for verdict in verdicts if tells(verdict["text"], "momentum untrained")]
    assert len(told) == 1 and told[0]["step"] == 0


def test_a_warm_up_as_long_as_the_run_is_told() -> None:
    made = config("simclr", epochs=2, optimizer=OptimizerConfig(warmup_epochs=10.0))
    found = advise(made, build_method(made, 100), samples=100, total=60)
    assert [verdict.name for verdict in found if verdict.name == "warmup"] == ["warmup"]
    assert "--optimizer.warmup_ratio" in next(v.text for v in found if v.name == "warmup")


def test_a_users_warm_up_replaces_the_papers() -> None:
    given = {"data": "glyphs:100", "recipe": "paper", "optimizer": {"warmup_ratio": 0.2}}
    assert build(TrainConfig, completed(given), "train").optimizer.warmup_epochs is None
