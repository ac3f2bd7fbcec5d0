"""The CIFAR-10 recipes under one protocol: what each method reaches, beside raw pixels and the untrained encoder.

    .venv/bin/python benchmarks/recipes.py --data cifar10 [--only simclr moco] [--epochs 15] [--out FILE]

`--data` holds `train/` and `test/` with a folder for each class. Each recipe runs as `nearfar train --config` runs it,
with its own seed, one after the other. The readings come from the run's own `evaluation.json`: weighted k-NN (k = 20,
cosine, temperature 0.07) and a linear probe whose strength is chosen on a part of the training pictures; the test
pictures serve for nothing but the numbers shown, with 95 % intervals.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
import yaml

from machine import describe
from nearfar.config import TrainConfig

ROOT = Path(__file__).parent.parent
METHODS = ("simclr", "moco", "byol", "instdisc")


def run(config: TrainConfig, folder: Path) -> dict[str, object]:
    """Train in a process of its own; the rows of its evaluation by (encoder, protocol), and its seconds."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(asdict(config)), encoding="utf-8")
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "nearfar", "train", "--config", str(recipe), "--out", str(folder / "run")], check=True
    )
    seconds = time.perf_counter() - start
    rows = json.loads((folder / "run" / "evaluation.json").read_text(encoding="utf-8"))["results"]
    return {"rows": {(row["encoder"], row["protocol"]): row for row in rows}, "seconds": seconds}


def shown(row: dict[str, float]) -> str:
    return f"{row['value']:.1%} ({row['low']:.1%} to {row['high']:.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--epochs", type=int, help="instead of the recipe's own")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "recipes.md")
    options = parser.parse_args()

    lines, first, config = [], None, None
    for method in options.only:
        config = TrainConfig.from_yaml(ROOT / "recipes" / f"cifar10-{method}.yaml")
        sources = replace(config.sources, test=str(options.data / "test"))
        epochs = options.epochs or config.epochs
        config = replace(config, data=str(options.data / "train"), sources=sources, epochs=epochs)
        with tempfile.TemporaryDirectory() as folder:
            found = run(config, Path(folder))
        rows = found["rows"]
        first = first or rows
        minutes = found["seconds"] / 60
        lines.append(
            f"| [{method}](../../recipes/cifar10-{method}.yaml) | {shown(rows['trained', 'knn'])} | "
            f"{shown(rows['trained', 'linear'])} | {config.epochs} | {config.batch_size} | {minutes:.1f} |"
        )
        print(lines[-1], flush=True)
    lines += [
        f"| {encoder} | {shown(first[encoder, 'knn'])} | {shown(first[encoder, 'linear'])} | | | |"
        for encoder in ("untrained", "raw")
    ]
    trained = first["trained", "knn"]["n"]
    threads = "one thread" if torch.get_num_threads() == 1 else f"{torch.get_num_threads()} threads"
    text = f"""# Recipes on CIFAR-10: one protocol, one small backbone

{describe()}.
`python benchmarks/recipes.py --data {options.data.name}`; {trained:,} test pictures, backbone `{config.backbone}`,
{config.image_size} px, one seed. Minutes are of the whole run with {threads} of torch: training, evaluation, report.

| encoder | k-NN | linear probe | epochs | batch | minutes |
|---|---|---|---|---|---|
{chr(10).join(lines)}

{__doc__.strip().split(chr(10) * 2)[2]}
"""
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
