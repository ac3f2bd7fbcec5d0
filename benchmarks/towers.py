"""How well two towers with weights find each other before any step, by the width of the fitted text projection.

    .venv/bin/python benchmarks/towers.py --data emoji4/pairs.csv --test noto [--vendors fluent openmoji twemoji]
        [--image-size 128] [--widths 0 1024 4096] [--features FILE]

The images of some vendors are embedded by `package:efficientnet-lite0`, their names by `package:minilm`, and the
projections are fitted as a run does before its first step (`nearfar.training.tower_start`). A tenth of the names is
left out of the fit (`--left-out`). Recall is that of the test vendor's images among all names, in percent, and of the
images of left-out names among those. "prototypes" are the mean image embedding of each name, without a text tower.
`--features` keeps the embeddings.
"""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nearfar
from nearfar.nn.towers import Tower
from nearfar.training.tower_start import centred_hidden, ridge, whitening_matrix

CUTOFFS = (1, 5, 10)


class Features(nn.Module):
    """Features as they are, in the place of an encoder."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.num_features = features

    def forward(self, x: Tensor) -> Tensor:
        return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--vendors", nargs="+", help="to fit to; all others unless given")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--widths", nargs="+", type=int, default=[0, 1024, 4096])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--left-out", type=float, default=0.1, help="part of the names that nothing is fitted to")
    parser.add_argument("--features", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with options.data.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["caption"] for row in rows})
    images, texts = embedded(options, [options.data.parent / row["path"] for row in rows], names)
    name = torch.tensor([names.index(row["caption"]) for row in rows])
    left = torch.rand(len(names), generator=torch.Generator().manual_seed(0)) < options.left_out
    vendors = options.vendors or sorted({row["vendor"] for row in rows} - {options.test})
    fitted = torch.tensor([row["vendor"] in vendors for row in rows])
    test = torch.tensor([row["vendor"] == options.test for row in rows])
    train = fitted & ~left[name]
    z = F.normalize(images @ whitening_matrix(images[train], options.dim), dim=1)
    everything = torch.arange(len(names))
    print("| projection | recall@1 | @5 | @10 | of left-out names @1 | @5 | @10 |\n|---|---|---|---|---|---|---|")
    kept = everything[~left]
    seen = test & ~left[name]
    means = torch.zeros(len(names), options.dim).index_add(0, name[train], z[train])
    print(f"| prototypes, of names that are fitted | {recall(z[seen], means[kept], name[seen], kept)} | | | |")
    for width in options.widths:
        torch.manual_seed(0)
        tower = Tower(Features(texts.shape[1]), options.dim, hidden=width)
        hidden = centred_hidden(tower, texts[name[train]])
        with torch.no_grad():
            tower.last.weight.copy_(ridge(hidden, z[train]).T)
            t = tower(texts)
        alone = test & left[name]
        among = recall(z[alone], t[left], name[alone], everything[left]) if bool(left.any()) else "| |"
        print(f"| {width or 'linear'} | {recall(z[test], t, name[test], everything)} | {among} |", flush=True)


def embedded(options: argparse.Namespace, paths: list[Path], names: list[str]) -> tuple[Tensor, Tensor]:
    """(N, 1280) of the images and (M, 384) of the names."""
    if options.features is not None and options.features.exists():
        images, texts = torch.load(options.features)
        return images, texts
    with torch.autocast("cpu", torch.bfloat16):
        images = nearfar.load("package:efficientnet-lite0", image_size=options.image_size).encode(paths).float()
    found = images, nearfar.load("package:minilm").encode(names).float()
    if options.features is not None:
        torch.save(found, options.features)
    return found


def recall(queries: Tensor, keys: Tensor, truth: Tensor, owners: Tensor) -> str:
    """Part of the queries that have their own among the nearest keys, in percent, as cells of a table."""
    nearest = (F.normalize(queries, dim=1) @ F.normalize(keys, dim=1).T).topk(max(CUTOFFS)).indices
    right = owners[nearest] == truth[:, None]
    return " | ".join(f"{100 * float(right[:, :k].any(1).float().mean()):.1f}" for k in CUTOFFS)


if __name__ == "__main__":
    main()
