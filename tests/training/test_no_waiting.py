"""A training step with its views reads nothing from its device: the meta device has no values to read."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nearfar.config import TrainConfig, completed
from nearfar.nn.text import TextEncoder
from nearfar.settings import build
from nearfar.training.build_method import build_method
from nearfar.training.lightning_module import Pretraining
from tests.support.models import fitted

SETTINGS: list[dict[str, Any]] = [
    {"data": "glyphs:40", "views": "simclr"},
    {"data": "glyphs:40", "views": "byol", "method": "byol"},
    {"data": "glyphs:40", "views": "shapes", "method": "moco"},
    {"data": "glyphs:40", "method": "dino"},
    {"data": "glyphs:40", "method": "clip"},
    {"data": "waves:40"},
    {"data": "waves:40", "method": "ts2vec"},
    {"data": "melodies:40", "method": "byol_a"},
]


def two_steps(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, split: str | None = "train") -> None:
    monkeypatch.setattr(torch, "autocast", lambda kind, **options: nullcontext())  # the meta device has none
    given: TrainConfig = build(TrainConfig, completed({**settings, "batch_size": 16}), "test")
    modality = fitted(given)
    config = modality.config
    source = modality.open(config.data.path, split)
    method = build_method(config, len(source)).to("meta")
    module = Pretraining(
        method, config, modality, source, total=10, ids=torch.arange(len(source)), labels=None, checkpoint=str
    )
    optimizer = module.configure_optimizers()
    for number in range(2):
        index = torch.arange(16) + number
        batch = module.transfer_batch_to_device((number, index, source.fetch(index)), torch.device("meta"), 0)
        module.training_step(batch, number).backward()
        optimizer.step()
        method.after_step(0.1)
    assert any(p.grad is not None for p in method.parameters())


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_a_step_with_its_views_waits_for_nothing(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    two_steps(settings, monkeypatch)


@pytest.mark.parametrize("method", ["simcse", "mlm"])
def test_a_step_with_texts_waits_for_nothing_and_leaves_out_padding(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"word{n} is word{n % 7}" for n in range(40)))
    lengths = set()
    states = TextEncoder.states

    def seen(self: TextEncoder, tokens: Tensor) -> Tensor:
        lengths.add(tokens.shape[1])
        return states(self, tokens)

    monkeypatch.setattr(TextEncoder, "states", seen)
    small = {"vocab_size": 400, "max_length": 64}
    two_steps({"data": str(texts), "method": method, "backbone": "text-micro", "text": small}, monkeypatch, split=None)
    assert lengths and max(lengths) < 32
