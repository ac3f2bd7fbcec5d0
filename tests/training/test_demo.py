"""The bare command: what a newcomer sees first, and that its encoder is prepared alike wherever it is used."""

from pathlib import Path

import pytest
import torch
from rich.console import Console

import nearfar
from nearfar.config import TrainConfig, completed
from nearfar.modalities.image.data.glyphs import glyphs
from nearfar.recipes import recipe
from nearfar.recipes.rerun import compare_rerun
from nearfar.settings import build
from nearfar.training.run import Run
from nearfar.training.train import run


def test_a_loaded_encoder_prepares_as_the_run_did(tmp_path: Path) -> None:
    config = build(TrainConfig, completed({"data": "glyphs:200", "epochs": 1}), "train")
    trained = Run(config, tmp_path, resume=False, console=Console(quiet=True))
    results = trained.execute()
    assert results is not None and {row.encoder for row in results.rows} == {
        *("trained", "untrained", "raw", "prepared", "colour histogram")
    }
    images = glyphs(8, seed=3).fetch(torch.arange(8))
    encoder = nearfar.load(tmp_path)
    torch.testing.assert_close(encoder.prepare(images), trained.setup.modality.preparation(images))
    assert not torch.allclose(encoder.prepare(images), encoder.prepare(255 - images))
    torch.testing.assert_close(encoder.prepare(images), -encoder.prepare(255 - images), atol=1e-3, rtol=0)


@pytest.mark.slow
def test_the_demo_learns_letters(tmp_path: Path) -> None:
    config = build(TrainConfig, completed({}), "train")
    results = run(config, tmp_path, console=Console(quiet=True))
    assert results is not None
    knn = {name: results.value(name, "knn") or 0.0 for name in ("trained", "untrained", "raw", "prepared")}
    assert 0.08 < knn["raw"] < 0.16
    assert knn["trained"] > 0.85 and knn["trained"] > 5 * knn["raw"]
    assert knn["trained"] > 2 * knn["untrained"] and knn["trained"] > knn["prepared"] + 0.2
    beside = compare_rerun(recipe("glyphs-simclr"), results.rows)  # as `nearfar recipes glyphs-simclr --rerun` does
    assert len(beside) == 2 and all(each.verdict != "LESS" for each in beside), beside
