"""Half precision: trained for real where the device can, refused in one line where it cannot."""

import json
from pathlib import Path

import pytest
import torch

from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts
from tests.training.runs import QUIET, config, stop_after, weights


@pytest.mark.parametrize("method", ["simclr", "moco", "byol"])
def test_bf16_trains_like_float32_and_resumes_bit_for_bit(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    runs = {}
    for precision in ("32", "bf16"):
        made = config(method, precision=precision, epochs=1)
        runs[precision] = Run(made, tmp_path / precision, resume=False, console=QUIET)
        runs[precision].execute()
    whole, full = weights(runs["bf16"]), weights(runs["32"])
    kinds = {x.dtype for x in whole.values() if x.is_floating_point()}
    assert kinds == {torch.float32}, "weights, queues and momentum networks stay in float32"
    assert any(not torch.equal(whole[name], full[name]) for name in whole), "the products were not in bfloat16"
    losses = [
        [json.loads(line)["loss"] for line in (tmp_path / precision / "metrics.jsonl").read_text().splitlines()]
        for precision in ("32", "bf16")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)

    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            Run(made, tmp_path / "stopped", resume=False, console=QUIET).execute()
    resumed = Run(made, tmp_path / "stopped", resume=True, console=QUIET)
    resumed.execute()
    for name, x in whole.items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_fp16_on_a_cpu_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Lightning would train in bf16 and say so in a warning."""
    with pytest.raises(ValueError, match=facts("fp16 GPU --precision bf16")):
        Run(config("simclr", precision="fp16", device="cpu"), tmp_path, resume=False, console=QUIET)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="float16 needs a GPU")
def test_fp16_trains_on_a_gpu(tmp_path: Path, train_only: None) -> None:
    run = Run(config("simclr", precision="fp16", device="cuda"), tmp_path, resume=False, console=QUIET)
    run.execute()
    assert all(x.isfinite().all() for x in weights(run).values())
