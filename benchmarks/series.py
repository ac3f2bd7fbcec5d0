"""The UCR archive's official splits: the nearest neighbor by a trained encoder, by DTW and by Euclid.

    .venv/bin/python benchmarks/series.py --data ucr_a [--only ECG200] [--method simclr] [--seeds 3]

`--data` holds NAME_TRAIN.tsv and NAME_TEST.tsv. Each set is trained on and measured as by `nearfar train --data
NAME_TRAIN.tsv --method METHOD`, with nothing else said: settings, embedding and numbers are those of the bare command.
Each test series takes the label of its nearest training series: by cosine of the embeddings, trained and untrained
(transformed by the same rule), by exact DTW without a band and by Euclid, both over the series as the archive gives
them; "linear" is the linear probe of the embeddings. All settings were chosen on splits within the training parts
(docs/automatic.md); test series serve for nothing but the numbers shown.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import mean, stdev

import torch
from rich.console import Console
from torch import Tensor

from machine import describe
from nearfar.config import TrainConfig, completed
from nearfar.evaluation.protocols.dtw import nearest_by_dtw
from nearfar.methods import METHODS
from nearfar.modalities.series.data import SeriesDataset, open_series
from nearfar.settings import build
from nearfar.training.run import Run

SERIES = [name for name, kind in METHODS.items() if "series" in kind.modalities]
COLUMNS = {
    "trained": "encoder",
    "untrained": "untrained",
    "dtw": "DTW",
    "euclid": "Euclid",
    "linear": "linear, encoder",
    "linear_untrained": "linear, untrained",
}


def accuracy(nearest: Tensor, train: SeriesDataset, test: SeriesDataset) -> float:
    """By name, since either part numbers its own classes."""
    assert train.labels is not None and test.labels is not None and train.classes and test.classes
    named = [train.classes[int(train.labels[row])] for row in nearest]
    right = [name == test.classes[int(label)] for name, label in zip(named, test.labels, strict=True)]
    return sum(right) / len(right)


def measure(path: Path, method: str, seeds: int, known: dict[str, float]) -> dict[str, float]:
    train, test = open_series(path), open_series(path, split="test")
    found = dict(known)
    start = time.process_time()
    if "dtw" not in found:
        found["euclid"] = accuracy(torch.cdist(test.values.flatten(1), train.values.flatten(1)).argmin(1), train, test)
        found["dtw"] = accuracy(nearest_by_dtw(test.values, train.values), train, test)
        found["dtw_seconds"] = time.process_time() - start
    each = [trained(path, method, seed) for seed in range(seeds)]
    for name in each[0]:
        found[name] = mean(row[name] for row in each)
    found["deviation"] = stdev(row["trained"] for row in each) if seeds > 1 else 0.0
    return found | {"train": len(train), "test": len(test), "length": train.size, "classes": len(train.classes or ())}


def trained(path: Path, method: str, seed: int) -> dict[str, float]:
    """What one run of the bare command prints, and the processor seconds of its training."""
    given = {"data": str(path), "method": method, "seed": seed, "device": "cpu"}
    config: TrainConfig = build(TrainConfig, completed(given), "train")
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder) / "run", resume=False, console=Console(quiet=True))
        run.setup.modality.protocols = ("knn", "linear")  # DTW is measured once, above
        fit, seconds = run._fit, []

        def timed() -> None:
            start = time.process_time()
            fit()
            seconds.append(time.process_time() - start)

        run._fit = timed  # type: ignore[method-assign]
        found = {(row.encoder, row.protocol, row.metric): row.value for row in run.execute().rows}
    return {
        "trained": found["trained", "knn", "accuracy, k = 1"],
        "untrained": found["untrained", "knn", "accuracy, k = 1"],
        "linear": found["trained", "linear", "accuracy"],
        "linear_untrained": found["untrained", "linear", "accuracy"],
        "seconds": seconds[0],
    }


def written(found: dict[str, dict[str, float]], options: argparse.Namespace) -> str:
    lines = []
    for name, row in sorted(found.items()):
        shape = f"{row['train']:.0f} + {row['test']:.0f}, {row['classes']:.0f} classes, {row['length']:.0f} steps"
        cells = [f"{row[column]:.1%}" for column in COLUMNS]
        cells[0] += f" ± {100 * row['deviation']:.1f}" if row["deviation"] else ""
        lines.append(f"| {name} ({shape}) | {' | '.join(cells)} | {row['seconds']:.0f} | {row['dtw_seconds']:.0f} |")
    means = [f"**{sum(row[column] for row in found.values()) / len(found):.1%}**" for column in COLUMNS]
    call = f"--data {options.data.name} --method {options.method} --seeds {options.seeds}"
    title = f"Series: nearest neighbours on {len(found)} sets of the UCR archive"
    return f"""# {title}{"" if options.method == "simclr" else f", by {options.method.upper()}"}

{describe()}.
`python benchmarks/series.py {call}`:
encoders are means over the seeds, with the deviation between them; seconds are of CPU time, for one training and for
DTW.

| set | {" | ".join(COLUMNS.values())} | training, s | DTW, s |
|{"---|" * (len(COLUMNS) + 3)}
{chr(10).join(lines)}
| mean | {" | ".join(means)} | | |

{__doc__.strip().split(chr(10) * 2)[2]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="names of sets")
    parser.add_argument("--method", default="simclr", choices=SERIES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--known", type=Path, help="JSON of an earlier run, whose numbers of DTW and Euclid are taken")
    parser.add_argument("--out", type=Path, help="(default: series.md, or series-cpc.md, in results/)")
    options = parser.parse_args()
    page = "series.md" if options.method == "simclr" else f"series-{options.method}.md"
    options.out = options.out or Path(__file__).parent / "results" / page

    torch.set_num_threads(1)
    files = sorted(options.data.glob("*_TRAIN.tsv"), key=lambda file: file.stat().st_size)
    found: dict[str, dict[str, float]] = {}
    for file in files:
        name = file.stem.removesuffix("_TRAIN")
        if options.only is None or name in options.only:
            before = json.loads(options.known.read_text()) if options.known else {}
            known = {k: v for k, v in before.get(name, {}).items() if k in ("dtw", "euclid", "dtw_seconds")}
            found[name] = measure(file, options.method, options.seeds, known)
            options.out.with_suffix(".json").write_text(json.dumps(found, indent=1), encoding="utf-8")
            print(name, {k: round(v, 3) for k, v in found[name].items()}, flush=True)
    text = written(found, options)
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
