"""The CIFAR-10 recipes under one protocol: what each method reaches, beside raw pixels, untrained and supervised.

    .venv/bin/python benchmarks/recipes.py --data cifar10 [--only simclr moco] [--epochs 15] [--runs DIR] [--out FILE]
    .venv/bin/python benchmarks/recipes.py --data cifar10 --as-trained [--only supcon simsiam] [--runs DIR]

`--data` holds `train/` and `test/` with a folder for each class; for the tables, a part of CIFAR-10 with 1,500 and 500
pictures of each class. Which ones is not known any more: those of another part will differ by more than the intervals
say. Each recipe runs as `nearfar train --config` runs it, with its own seed, one after the other. Then all are measured
as `nearfar evaluate` measures them: weighted k-NN (k = 20, cosine, temperature 0.07), a linear probe whose strength is
chosen on a part of the training pictures, and fine-tuning of the whole encoder on 1 % and 10 % of the labels, the mean
of three draws of them, stopped where a fifth of them says so. The untrained encoder fine-tuned is supervised learning
from scratch, for which all labels are used as well. The test pictures serve for nothing but the numbers shown, with
95 % intervals.

With `--as-trained` nothing is measured anew: the table has the k-NN and the probe that each run ended with, by the same
protocols, and goes to `methods.md`.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import yaml

import nearfar
from machine import describe
from nearfar.config import TrainConfig
from nearfar.evaluation.evaluate_run import as_embedder
from nearfar.evaluation.measure import TestData
from nearfar.evaluation.measure import measure as measure_all
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.finetune import FinetuneSettings
from nearfar.evaluation.results import Results, Row
from nearfar.evaluation.task import Compute

ROOT = Path(__file__).parent.parent
METHODS = ("simclr", "moco", "byol", "instdisc")
OTHERS = ("moco_v1", "moco_v3", "simclr_v2", "nnclr", "simsiam", "barlow_twins", "vicreg", "supcon")
FEW, SEEDS = [0.01, 0.1], 3
COLUMNS = {
    "k-NN": ("knn", "accuracy"),
    "linear probe": ("linear", "accuracy"),
    "1 % of labels": ("finetune", "accuracy, 1 % labels"),
    "10 % of labels": ("finetune", "accuracy, 10 % labels"),
    "all labels": ("finetune", "accuracy, 100 % labels"),
}


def recipe_of(method: str, options: argparse.Namespace) -> TrainConfig:
    config = TrainConfig.from_yaml(ROOT / "recipes" / f"cifar10-{method}.yaml")
    data = replace(config.data, path=str(options.data / "train"), test=str(options.data / "test"))
    return replace(config, data=data, epochs=options.epochs or config.epochs)


def train(config: TrainConfig, run: Path) -> None:
    """Train in a process of its own; nothing is done where the run is there already."""
    if run.exists():
        return
    run.parent.mkdir(parents=True, exist_ok=True)
    recipe = run.with_suffix(".yaml")
    recipe.write_text(yaml.safe_dump(asdict(config)), encoding="utf-8")
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "nearfar", "train", "--config", str(recipe), "--out", str(run)], check=True)
    print(f"{config.method}: {(time.perf_counter() - start) / 60:.1f} minutes", flush=True)


def measure(runs: dict[str, Path], options: argparse.Namespace, out: Path) -> Results:
    """All runs beside raw pixels and the untrained encoder, which is trained on all labels, too."""
    first, *others = map(str, runs.values())
    data, test = str(options.data / "train"), str(options.data / "test")
    results = nearfar.evaluate(
        first,
        data,
        test=test,
        protocols=["knn", "linear", "finetune"],
        against=others,
        seeds=SEEDS,
        settings=ProtocolConfig(finetune=FinetuneSettings(label_fractions=FEW)),
        compute=Compute(progress=True),
    )
    every = ProtocolConfig(finetune=FinetuneSettings(label_fractions=[1.0]))
    scratch = nearfar.load(first, untrained=True)
    splits = scratch.modality.split(data, test)
    assert splits.test is not None
    where = TestData(splits.train, splits.test, data, vary=scratch.modality.vary)
    results.rows.extend(measure_all([as_embedder("untrained", scratch)], where, ["finetune"], every).rows)
    results.save(out / "evaluation.json")
    return results


def shown(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row.value:.1%}" if row.low is None else f"{row.value:.1%} ({row.low:.1%} to {row.high:.1%})"


def as_trained(configs: dict[str, TrainConfig], runs: dict[str, Path], options: argparse.Namespace) -> str:
    """The page of what each run measured itself."""
    lines = []
    for method, run in runs.items():
        rows = Results.load(run / "evaluation.json").rows
        found = {(row.encoder, row.protocol): row for row in rows if row.metric == "accuracy"}
        cells = [
            shown(found[encoder, protocol]) if encoder == "trained" else f"{found[encoder, protocol].value:.1%}"
            for protocol in ("knn", "linear")
            for encoder in ("trained", "untrained", "raw")
        ]
        name = f"[{method}](../../recipes/cifar10-{method}.yaml)"
        settings = f"{configs[method].epochs} | {configs[method].batch_size}"
        lines.append(f"| {name} | {' | '.join(cells)} | {settings} |")
    config, missing = next(iter(configs.values())), [method for method in OTHERS if method not in runs]
    return f"""# Other methods on CIFAR-10, as their runs ended

{describe()}.
`python benchmarks/recipes.py --data {options.data.name} --as-trained`: `nearfar train` with each recipe, once, on
15,000 pictures, and its own evaluation on 5,000 others (see [recipes](recipes.md)); backbone `{config.backbone}`,
{config.image_size} px. A run holds a tenth of its pictures out, so that neighbours and probe have 13,500 to learn from,
where [recipes](recipes.md) has 15,000. The recipes were set by the papers and the size of the encoder; none was changed
after these numbers.

| encoder | k-NN | k-NN, untrained | k-NN, raw | linear probe | probe, untrained | probe, raw | epochs | batch |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

SupCon learns from the labels of the training pictures, the others from none. All runs are short, and the encoder is
small: papers train for hundreds of epochs. The table is for choosing where to start and for `nearfar recipes NAME
--rerun`, not for ranking methods.{f" Not measured: {', '.join(missing)}." if missing else ""}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=METHODS + OTHERS, help="others than the usual for the table")
    parser.add_argument("--as-trained", action="store_true", help="show what each run measured itself")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's own")
    parser.add_argument("--runs", type=Path, help="where the runs go; one that is there is used again")
    parser.add_argument("--train-only", action="store_true", help="train what is missing, and measure nothing")
    parser.add_argument("--out", type=Path, help="(default: recipes.md or methods.md in results/)")
    options = parser.parse_args()
    options.only = options.only or (OTHERS if options.as_trained else METHODS)
    page = "methods.md" if options.as_trained else "recipes.md"
    options.out = options.out or Path(__file__).parent / "results" / page

    configs = {method: recipe_of(method, options) for method in options.only}
    with tempfile.TemporaryDirectory() as name:
        folder = options.runs or Path(name)
        for method, config in configs.items():
            train(config, folder / method)
        if options.train_only:
            return
        if options.as_trained:
            text = as_trained(configs, {method: folder / method for method in configs}, options)
            options.out.write_text(text, encoding="utf-8")
            print(text)
            return
        results = measure({method: folder / method for method in configs}, options, Path(name) / "evaluation")
    found = {(row.encoder, row.protocol, row.metric): row for row in results.rows}
    config = next(iter(configs.values()))
    lines = []
    for encoder in (*configs, "untrained", "raw"):
        called = "trained" if encoder == options.only[0] else encoder
        cells = [shown(found.get((called, *column))) for column in COLUMNS.values()]
        if encoder in configs:
            name = f"[{encoder}](../../recipes/cifar10-{encoder}.yaml)"
            cells += [str(configs[encoder].epochs), str(configs[encoder].batch_size)]
        else:
            name, cells = (
                {"untrained": "untrained; supervised from scratch", "raw": "raw pixels"}[encoder],
                [*cells, "", ""],
            )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    text = f"""# Recipes on CIFAR-10: one protocol, one small backbone

{describe()}.
`python benchmarks/recipes.py --data {options.data.name}`; {results.rows[0].n:,} test pictures, backbone
`{config.backbone}`, {config.image_size} px, one seed of the pretraining.

| encoder | {" | ".join(COLUMNS)} | epochs | batch |
|{"---|" * (len(COLUMNS) + 3)}
{chr(10).join(lines)}

{__doc__.strip().split(chr(10) * 2)[2]}
"""
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
