"""How long nearfar's bare command needs for what lightly's own examples reach, on one core.

    .venv-bench/bin/python benchmarks/duel.py --data cifar10 [--seconds 150 600] [--fraction 0.1] [--seeds 3]
        [--examples simclr moco byol simsiam fastsiam] [--backbones tiny quick] [--out FILE]

`--data` holds `train/` and `test/` with a folder for each class. Each example of lightly has the transform, heads,
loss, batch of 256 and SGD with a rate of 0.06 of its `examples/pytorch`, with nearfar's small ResNet `tiny` in place
of a ResNet-18 and, for comparison, with nearfar's own `quick`; it is measured after each of `--seconds` of processor
time. nearfar trains what `nearfar train --data cifar10/train` would, in `--fraction` of each of these lengths, a run
for each. Both have one thread and one process; lightly's pictures are decoded before its clock starts. The number is
weighted k-NN (k = 20, cosine) of the encoder's features on the test part, with the whole training part as neighbors.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from learning import run
from machine import describe
from nearfar import _torchvision  # noqa: F401  # before lightly imports torchvision
from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding import embed
from nearfar.evaluation.knn import knn_accuracy
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.data.opening import open_images
from nearfar.modalities.image.views.prepare import resize_eval

SIZE, BATCH, RATE, MOMENTUM = 32, 256, 0.06, 0.99

EXAMPLES = ("simclr", "moco", "byol", "simsiam", "fastsiam")
Transform = Callable[[Image.Image], list[Tensor]]


class Example(nn.Module):
    """One of lightly's examples: networks, a loss of views, and what is done before each step."""

    def __init__(self, name: str, encoder: nn.Module, features: int) -> None:
        super().__init__()
        from lightly.loss import NegativeCosineSimilarity, NTXentLoss
        from lightly.models.modules import heads

        self.name, self.encoder = name, encoder
        self.projector: nn.Module
        self.predictor: nn.Module = nn.Identity()
        if name == "simclr":
            self.projector = heads.SimCLRProjectionHead(features, 512, 128)
            self.loss = NTXentLoss()
        elif name == "moco":
            self.projector = heads.MoCoProjectionHead(features, 512, 128)
            self.loss = NTXentLoss(memory_bank_size=(4096, 128))
        elif name == "byol":
            self.projector = heads.BYOLProjectionHead(features, 1024, 256)
            self.predictor = heads.BYOLPredictionHead(256, 1024, 256)
            self.loss = NegativeCosineSimilarity()
        else:
            self.projector = heads.SimSiamProjectionHead(features, 512, 128)
            self.predictor = heads.SimSiamPredictionHead(128, 64, 128)
            self.loss = NegativeCosineSimilarity()
        self.target = copy.deepcopy(nn.Sequential(self.encoder, self.projector)).requires_grad_(False)

    def forward(self, views: list[Tensor]) -> Tensor:
        if self.name in ("moco", "byol"):
            self._move_target()
        z = [self.projector(self.encoder(view)) for view in views]
        if self.name == "simclr":
            return self.loss(z[0], z[1])
        if self.name == "moco":
            return self.loss(z[0], self.target(views[1]).detach())
        p = [self.predictor(each) for each in z]
        if self.name == "byol":
            z = [self.target(view) for view in views]
        z = [each.detach() for each in z]
        others = [torch.stack([t for j, t in enumerate(z) if j != i]).mean(0) for i in range(len(z))]
        return torch.stack([self.loss(a, b) for a, b in zip(p, others, strict=True)]).mean()

    @torch.no_grad()
    def _move_target(self) -> None:
        from lightly.models.utils import update_momentum

        update_momentum(nn.Sequential(self.encoder, self.projector), self.target, m=MOMENTUM)


def transform_of(name: str) -> Transform:
    """What the example makes of a picture."""
    from lightly import transforms

    if name == "simclr":
        return transforms.SimCLRTransform(input_size=SIZE, gaussian_blur=0.0)
    if name == "moco":
        return transforms.MoCoV2Transform(input_size=SIZE, gaussian_blur=0.0)
    if name == "byol":
        return transforms.BYOLTransform(
            transforms.BYOLView1Transform(input_size=SIZE, gaussian_blur=0.0),
            transforms.BYOLView2Transform(input_size=SIZE, gaussian_blur=0.0),
        )
    if name == "fastsiam":
        return transforms.FastSiamTransform(input_size=SIZE)
    return transforms.SimSiamTransform(input_size=SIZE)


def train_lightly(data: Path, name: str, network: str, seed: int, seconds: list[float]) -> list[float]:
    """k-NN of the example after each of these processor seconds."""
    torch.manual_seed(seed)
    train, test = (open_images(str(data / part), stored_size=SIZE, labels=True) for part in ("train", "test"))
    pictures = [Image.fromarray(row.permute(1, 2, 0).numpy()) for row in train.fetch(torch.arange(len(train)))]
    encoder = backbone(network, size=SIZE)
    example = Example(name, encoder, encoder.num_features)
    optimizer = torch.optim.SGD([p for p in example.parameters() if p.requires_grad], lr=RATE)
    transform, found, used = transform_of(name), [], 0.0
    steps = training_steps(example.train(), optimizer, transform, pictures)
    for length in seconds:
        while used < length:
            start = time.process_time()
            next(steps)
            used += time.process_time() - start
        found.append(accuracy(encoder, train, test))
    return found


def training_steps(
    example: Example, optimizer: torch.optim.Optimizer, transform: Transform, pictures: list[Image.Image]
) -> Iterator[None]:
    """lightly's loop, a step at a time."""
    while True:
        order = torch.randperm(len(pictures)).tolist()
        for i in range(0, len(order) - BATCH + 1, BATCH):
            samples = [transform(pictures[row]) for row in order[i : i + BATCH]]
            loss = example([torch.stack(views) for views in zip(*samples, strict=True)])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def accuracy(encoder: nn.Module, train: Dataset, test: Dataset) -> float:
    parts = [embed(encoder.eval(), part, prepare=lambda x: resize_eval(x, SIZE)) for part in (train, test)]
    encoder.train()
    assert train.labels is not None and test.labels is not None
    return 100 * knn_accuracy(parts[0], train.labels, parts[1], test.labels).value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, nargs="+", default=[150, 600])
    parser.add_argument("--fraction", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", nargs="+", choices=EXAMPLES, default=list(EXAMPLES))
    parser.add_argument("--backbones", nargs="+", default=["tiny", "quick"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lengths = [f"{seconds:.0f} s" for seconds in options.seconds]
    lines = [f"| | {' | '.join(lengths)} |", "|---|" + "---|" * len(lengths)]
    for network in options.backbones:
        for name in options.examples:
            runs = [train_lightly(options.data, name, network, seed, options.seconds) for seed in range(options.seeds)]
            lines.append(row(f"lightly's {name} on `{network}`", list(zip(*runs, strict=True))))
            print(lines[-1], flush=True)
    short = [options.fraction * seconds for seconds in options.seconds]
    found = [
        [run(options.data, "simclr", "default", seed, seconds, "test") for seed in range(options.seeds)]
        for seconds in short
    ]
    lines.append(row("nearfar, untrained", [[each["untrained"] for each in runs] for runs in found]))
    title = " and ".join(f"{seconds:.0f} s" for seconds in short)
    lines.append(row(f"**nearfar's bare command in {title}**", [[each["k-NN"] for each in runs] for runs in found]))
    print("\n".join(lines[-2:]))
    if options.out is not None:
        options.out.write_text(page(options, lines), encoding="utf-8")


def row(name: str, results: Sequence[Sequence[float]]) -> str:
    cells = [
        f"{statistics.mean(runs):.1f}" + (f" ± {statistics.stdev(runs):.1f}" if len(runs) > 1 else "")
        for runs in results
    ]
    return f"| {name} | {' | '.join(cells)} |"


def page(options: argparse.Namespace, lines: list[str]) -> str:
    import lightly

    times = " ".join(f"{seconds:.0f}" for seconds in options.seconds)
    how = (
        f"{describe()}, lightly {lightly.__version__}. `python benchmarks/duel.py --data {options.data.name} --seconds "
        f"{times} --fraction {options.fraction:g} --seeds {options.seeds}`, one thread; k-NN % (k = 20) on the test "
        f"part, mean of {options.seeds} seeds and their standard deviation.\n"
    )
    return "\n".join(["# lightly's examples, and nearfar in a tenth of their time\n", how, *lines, ""])


if __name__ == "__main__":
    main()
