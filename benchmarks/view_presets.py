"""What the trial of views chooses, beside fixed views, in the same processor seconds.

    .venv/bin/python benchmarks/view_presets.py cifar10 clothing_small made/flowers [--seconds 60] [--seeds 1]
        [--presets automatic vary/flip/vary ...] [--out FILE]

Each set holds `train/` and `test/` with a folder for each class (`benchmarks/made_pictures.py` makes some). A run is
what `nearfar train --data SET/train --weights none` would be, with one thread, but for the views: color, orientation
and scale. "automatic" is what the trial chooses, whose seconds are part of the run's. A sixth of the training pictures
is held out: "validation" is the k-NN of those, on which everything is chosen, and "test" that of the test part, with
the pictures that were trained on as neighbors (k = 20, cosine, temperature 0.07, percent). Each run adds a line of
JSON to `--out`, from which `--table` makes the tables.
"""

import argparse
import json
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.console import Console

from learning import accuracy, train
from nearfar.config import TrainConfig, completed
from nearfar.modalities.config import VIEW_FACTORS
from nearfar.settings import build
from nearfar.training.setup import TrainingSetup
from nearfar.training.view_trial import choose_view_factors

AUTOMATIC = "automatic"
PRESETS = (
    "vary/flip/vary",
    "mild/flip/vary",
    "keep/flip/vary",
    "vary/keep/vary",
    "vary/flip/keep",
    "vary/keep/keep",
)  # color, orientation, scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="*")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--presets", nargs="+", default=[AUTOMATIC, *PRESETS])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="only print the tables of what --out holds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for data in [] if options.table else options.data:
        for preset in options.presets:
            for seed in range(options.seeds):
                found = run(data, preset, seed, options.seconds)
                with options.out.open("a", encoding="utf-8") as file:
                    print(json.dumps(found), file=file)
                print(found, flush=True)
    print(tables([json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]))


def run(data: Path, preset: str, seed: int, seconds: float) -> dict[str, Any]:
    """One run of so many processor seconds."""
    given: dict[str, Any] = {
        "data": {"path": str(data / "train"), "labels": True, "validation": 1 / 6, "test": str(data / "test")},
        "method": "simclr",
        "seed": seed,
        "weights": "none",
        "device": "cpu",
        "time": f"{seconds}s",
    }
    if preset != AUTOMATIC:
        given["views"] = dict(zip(VIEW_FACTORS, preset.split("/"), strict=True))
    setup = TrainingSetup(build(TrainConfig, completed(given), "train"), Console(quiet=True))
    setup.config = replace(setup.config, device="cpu")
    assert setup.validation is not None and setup.test is not None
    start = time.process_time()
    choose_view_factors(setup, Path("unused"), Console(quiet=True))
    spent = time.process_time() - start
    used, steps = train(setup, seconds - spent)
    views = "/".join(str(getattr(setup.config.views, name)) for name in VIEW_FACTORS)
    return {
        "set": data.name,
        "asked": preset,
        "views": views,
        "seed": seed,
        "budget": seconds,
        "steps": steps,
        "trial": round(spent, 1),
        "seconds": round(spent + used, 1),
        "validation": round(accuracy(setup, setup.validation), 2),
        "test": round(accuracy(setup, setup.test), 2),
    }


def tables(lines: list[dict[str, Any]]) -> str:
    """Presets in rows, sets in columns, for each length and part; means over seeds and, last, over the sets."""
    found = []
    for budget in sorted({line["budget"] for line in lines}):
        for part in ("validation", "test"):
            values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
            for line in lines:
                if line["budget"] == budget:
                    values[line["asked"]][line["set"]].append(line[part])
            sets = list(dict.fromkeys(line["set"] for line in lines if line["budget"] == budget))
            found += [
                f"\n{budget:g} seconds, {part}\n",
                f"| views | {' | '.join(sets)} | mean |",
                "|---" * (len(sets) + 2) + "|",
            ]
            for asked, row in values.items():
                cells = [f"{mean(row[name]):.1f}" if row[name] else "" for name in sets]
                whole = f"{mean(mean(row[name]) for name in sets):.1f}" if all(cells) else ""
                found.append(f"| {asked} | {' | '.join(cells)} | {whole} |")
    return "\n".join(found)


if __name__ == "__main__":
    main()
