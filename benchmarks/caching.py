"""Gradient caching: peak memory and time of a training step against the batch, in one piece and in micro-batches.

    python benchmarks/caching.py [--out FILE]

A step is what the trainer does: views, encoder, head, loss, backward. Memory is by how much the step raises the
resident memory of the process at its peak; time is that of the processor. The second table is what batch-norm makes
of it: the same step of 256 samples in one piece and in parts, with the batch-norms as they are and with group-norms in
their place.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from machine import describe, extra_memory
from nearfar.config import TrainConfig, completed
from nearfar.settings import build
from nearfar.training.lightning_module import Pretraining
from nearfar.training.memory_plan import resident
from nearfar.training.setup import TrainingSetup

BATCHES, MICRO = (256, 512, 1024, 2048), 128
PARTS = (128, 64, 32, 16)


def module_of(**settings: Any) -> Pretraining:
    config: TrainConfig = build(TrainConfig, completed({"data": "glyphs:2100", "batch_size": 256} | settings), "bench")
    setup = TrainingSetup(config, Console(quiet=True))
    ids = setup.modality.ids(setup.train)
    return Pretraining(
        setup.method.train(),
        config,
        setup.modality,
        setup.train,
        total=100,
        ids=ids,
        labels=None,
        checkpoint=lambda: "",
    )


def step(module: Pretraining, rows: int, micro: int | None) -> Tensor:
    """Loss of a step that ends with the gradients in place."""
    module.config = replace(module.config, batch_size=rows, micro_batch_size=micro)
    index = torch.arange(rows) % len(module.source)
    module.method.zero_grad()
    loss = module.training_step((0, index, module.source.fetch(index)), 0)
    loss.backward()
    return loss.detach()


def costs() -> list[str]:
    module, rows = module_of(backbone="strokes"), []
    step(module, 32, 16)  # what is kept from then on
    for batch in BATCHES:
        cells = [f"| {batch} "]
        for micro in (None, MICRO):
            seconds = 0.0

            def work(micro: int | None = micro, batch: int = batch) -> None:
                nonlocal seconds
                start = time.process_time()
                step(module, batch, micro)
                seconds = time.process_time() - start

            module.modality._room = []  # type: ignore[attr-defined]
            resident()
            memory = extra_memory(work)
            cells.append(f"| {memory:.0f} | {seconds:.1f} ")
        rows.append("".join(cells) + "|")
        print(rows[-1], flush=True)
    return rows


def with_group_norm(module: nn.Module) -> nn.Module:
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(8, child.num_features))
        else:
            with_group_norm(child)
    return module


def gradient(module: Pretraining) -> Tensor:
    return torch.cat([p.grad.flatten() for p in module.method.parameters() if p.grad is not None]).clone()


def effect() -> list[str]:
    rows = []
    for name, settings, change in (
        ("simclr, batch-norm", {}, False),
        ("moco, batch-norm in groups of 32", {"method": "moco", "options": {"queue_size": 4096}}, False),
        ("simclr, group-norm", {}, True),
    ):
        module = module_of(**settings)
        if change:
            with_group_norm(module.method)
        whole, expected = step(module, 256, None), gradient(module)
        for micro in PARTS:
            loss, seen = step(module, 256, micro), gradient(module)
            off = float((seen - expected).norm() / expected.norm())
            angle = float(torch.cosine_similarity(seen, expected, dim=0))
            rows.append(f"| {name} | {micro} | {float(loss - whole):+.4f} | {off:.1e} | {angle:.4f} |")
            print(rows[-1], flush=True)
            if hasattr(module.method, "_pending"):
                module.method._pending.take()  # no step was made
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "caching.md")
    options = parser.parse_args()
    found, norms = costs(), effect()
    text = [
        "# Gradient caching",
        "",
        f"{describe()}, {torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}.",
        "`python benchmarks/caching.py`: SimCLR on glyphs, backbone `strokes`, 32 px.",
        "",
        f"| batch | in one piece, MiB | CPU s | `--micro-batch-size {MICRO}`, MiB | CPU s |",
        "|---|---|---|---|---|",
        *found,
        "",
        "What batch-norm sees, batch 256 on untrained weights: loss and gradient in parts against those in one piece.",
        "",
        "| | micro-batch | loss | gradient, relative difference | cosine |",
        "|---|---|---|---|---|",
        *norms,
        "",
        *(__doc__ or "").strip().splitlines()[4:],
    ]
    options.out.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
