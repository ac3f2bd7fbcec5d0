"""What a process holds with `--strategy fsdp`: bytes of weights, gradients and AdamW's state. Arithmetic, no timing.

torch gives the first processes ceil(rows / processes) rows of each weight; the tests count the tensors of processes and
find the same. At work: what is whole besides while a unit runs, the method without its blocks and the largest block.

    python benchmarks/fsdp.py [--processes 1 2 4 8 64] [--out benchmarks/results/fsdp.md]
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from nearfar.distributed import fsdp
from nearfar.methods import METHODS
from nearfar.modalities.image.backbones import backbone

CASES = [("simclr", "resnet50"), ("byol", "resnet50"), ("moco_v3", "vit_base_patch16_224")]


def built(method: str, network: str) -> nn.Module:
    with torch.device("meta"):  # shapes alone
        encoder = backbone(network, size=224)
        return METHODS[method](encoder, features=encoder.num_features)


def held(weights: Iterable[Tensor], processes: int) -> int:
    """Bytes of the first process, which holds most."""
    return sum(p.nbytes if p.ndim == 0 else -(-len(p) // processes) * p[0].nbytes for p in weights)


def row(method: nn.Module, processes: int) -> list[int]:
    weights, trained = list(method.parameters()), [p for p in method.parameters() if p.requires_grad]
    units = [held(block.parameters(), 1) for block in fsdp.find_blocks(method)]
    at_work = held(weights, 1) - sum(units) + max(units, default=0) if processes > 1 else 0
    parts = [held(weights, processes), held(trained, processes), 2 * held(trained, processes)]
    return [*parts, sum(parts), at_work]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8, 64])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "fsdp.md")
    options = parser.parse_args()
    lines = [
        "# What a process holds with `--strategy fsdp`",
        "",
        "MiB of the process that holds most; float32, AdamW, the methods' own heads. At work: what is whole besides",
        "while a unit runs. Arithmetic from the weights' shapes; the tests count the tensors of processes: the same.",
        "",
        "| method | backbone | processes | weights | gradients | optimiser | all | at work |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, network in CASES:
        method = built(name, network)
        for processes in options.processes:
            cells = " | ".join(f"{n / 2**20:,.1f}" for n in row(method, processes))
            lines.append(f"| {name} | {network} | {processes} | {cells} |")
            print(lines[-1], flush=True)
    lines += ["", "Run again: `python benchmarks/fsdp.py`.", ""]
    options.out.write_text("\n".join(lines))
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
