"""Runs with --micro-batch-size: the same views, the same weights, resumed to the same bits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nearfar.cli import main
from nearfar.config import TrainConfig, completed
from nearfar.distributed.grad_cache import equal_chunks
from nearfar.methods import METHODS
from nearfar.settings import build
from nearfar.training.advice import advise
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import tells
from tests.support.models import fitted
from tests.training.runs import QUIET, config, stop_after, weights


def of(**settings: Any) -> TrainConfig:
    made: TrainConfig = build(TrainConfig, completed(settings), "test")
    return fitted(made).config


@pytest.mark.parametrize(
    "settings",
    [
        {"data": "glyphs:40", "views": "simclr"},
        {"data": "glyphs:40", "views": "byol", "image_size": 32},
        {"data": "glyphs:40", "views": "shapes"},
        {"data": "glyphs:40", "method": "clip"},
        {"data": "waves:40"},
        {"data": "melodies:40", "method": "byol_a"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_views_of_parts_are_those_of_the_whole(settings: dict[str, Any]) -> None:
    made = of(**settings)
    modality = fitted(made)
    source = modality.open(made.data.path, "train")
    index = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))[:17]
    samples = source.fetch(index)
    whole = [x.clone() for x in modality.views(samples, source, index, seed=3, step=5)]
    views = modality.views_of_rows(samples, source, index, seed=3, step=5)
    for _ in range(2):  # in the first pass and in the second
        parts = [[x.clone() for x in views(rows)] for rows in equal_chunks(17, 6)]
        for number, expected in enumerate(whole):
            torch.testing.assert_close(torch.cat([part[number] for part in parts]), expected, equal_nan=True)


def test_weights_are_those_of_an_undivided_run_where_no_batch_norm_sees_the_batch(
    tmp_path: Path, train_only: None
) -> None:
    found = {}
    for micro in (None, 12):
        made = of(data="waves:80", method="cpc", epochs=1, batch_size=32, micro_batch_size=micro)
        run = Run(made, tmp_path / str(micro), resume=False, console=QUIET)
        before = weights(run)
        run.execute()
        found[micro] = weights(run)
    assert any(not torch.equal(before[name], x) for name, x in found[12].items())
    for name, x in found[None].items():
        torch.testing.assert_close(found[12][name], x, rtol=1e-3, atol=1e-5)
    lines = [json.loads(line) for line in (tmp_path / "12" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 2 and lines[-1]["bound"] is not None and len(lines[-1]["horizons"]) == 12


def test_a_stopped_run_resumes_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    made = config(
        "moco", micro_batch_size=12, accumulate_batches=2, batch_size=24, epochs=2, precision="bf16", tile_size=8
    )
    whole = Run(made, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(TrainingStopped):
            Run(made, tmp_path / "stopped", resume=False, console=QUIET).execute()
    resumed = Run(made, tmp_path / "stopped", resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--batch", "8", "--micro-batch-size", "1"], "micro_batch_size 1 2"),
        (["--batch-size", "3", "--micro-batch-size", "2"], "micro_batch_size 2 3"),
        (["--micro-batch-size", "0"], "micro_batch_size 0"),
        (["--tile-size", "0"], "tile_size 0 1"),
    ],
)
def test_parts_that_cannot_be_are_refused_in_a_line(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *flags]) == 1
    error = capsys.readouterr().err
    assert tells(error, words) and len(error.splitlines()) == 1


def test_what_batch_norm_sees_is_said_before_the_run() -> None:
    made = config("byol", micro_batch_size=8)
    small: dict[str, Any] = {"features": 32, "samples": 200}
    encoder = torch.nn.Linear(4, 32)
    names = {
        method: {v.name for v in advise(made, METHODS[method](encoder, **small), samples=10**6, total=10**6)}
        for method in ("simclr", "supcon")
    }
    assert "batch_norm" in names["simclr"] and "batch_norm" not in names["supcon"]
