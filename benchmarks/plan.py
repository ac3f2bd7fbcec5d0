"""`nearfar plan` beside what is measured: the predicted and the real peak of memory, for several kinds of runs.

    python benchmarks/plan.py [--out FILE] [--measured FILE]

Each prediction and each measurement has a process of its own. Measured is the peak resident memory of a process that
opens the data, trains for two steps and looks at the validation samples once; the ratio is predicted over measured.
`--measured` takes the measured bytes, in the order of the runs, from a JSON list, where only the predictions are new.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import describe

GLYPHS = "glyphs:1500"
RUNS: list[dict[str, Any]] = [
    {"data": GLYPHS, "batch_size": 1024},
    {"data": GLYPHS, "batch_size": 1024, "micro_batch_size": 128},
    {"data": GLYPHS, "method": "moco", "backbone": "tiny", "batch_size": 512},
    {"data": GLYPHS, "method": "moco", "backbone": "tiny", "batch_size": 512, "micro_batch_size": 64},
    {
        "data": GLYPHS,
        "method": "barlow_twins",
        "batch_size": 128,
        "optimizer": {"name": "adamw"},
        "options": {"dim": 4096, "hidden": 4096},
    },
    {"data": GLYPHS, "method": "byol", "backbone": "resnet18", "batch_size": 24},
    {"data": GLYPHS, "method": "clip", "batch_size": 512, "precision": "bf16"},
    {"data": "waves:1500", "method": "cpc", "batch_size": 256, "options": {"positions": 8}},
    {"data": "melodies:300", "method": "byol_a", "batch_size": 128, "options": {"hidden": 512}},
    {"data": "TEXTS", "method": "simcse", "batch_size": 512, "micro_batch_size": 128},
]
TARGET = 0.2


def one(settings: dict[str, Any], measured: int | None) -> None:
    """Predict, in this process; measure, in another, unless that was done."""
    from nearfar.config import TrainConfig, completed
    from nearfar.settings import build
    from nearfar.training.memory_plan import costs_of, measure

    config: TrainConfig = build(TrainConfig, completed(settings), "plan")
    start = time.process_time()
    costs = costs_of(config)
    seconds = time.process_time() - start
    peak = costs.peak(config.batch_size, config.micro_batch_size, accumulate=config.accumulate_batches)
    seen = measured or measure(config)
    print(json.dumps({"predicted": peak.total, "process": peak.process, "seconds": seconds, "peak": seen}))


def texts(folder: Path) -> str:
    words = ["the", "small", "red", "old", "river", "house", "stone", "bird", "garden", "winter", "under", "sings"]
    lines = (" ".join(words[(i * k + i // 7) % len(words)] for k in range(3, 3 + 5 + i % 20)) for i in range(1500))
    (folder / "lines.txt").write_text("".join(f"{line} {n}\n" for n, line in enumerate(lines)))
    return str(folder / "lines.txt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "plan.md")
    parser.add_argument("--one", help="settings of a single run, as JSON")
    parser.add_argument("--measured", type=Path, help="peaks measured before")
    options = parser.parse_args()
    if options.one:
        one(*json.loads(options.one))
        return
    measured = [None] * len(RUNS) if options.measured is None else json.loads(options.measured.read_text())
    rows, off = [], []
    with tempfile.TemporaryDirectory() as folder:
        lines = texts(Path(folder))
        for settings, known in zip(RUNS, measured, strict=True):
            given = settings | ({"data": lines} if settings["data"] == "TEXTS" else {})
            command = [sys.executable, "-W", "ignore", __file__, "--one", json.dumps([given, known])]
            child = subprocess.run(command, capture_output=True, text=True)
            if child.returncode:
                raise SystemExit(f"{settings}: {child.stderr}")
            found = json.loads(child.stdout.strip().splitlines()[-1])
            ratio = found["predicted"] / found["peak"]
            name = f"{settings.get('method', 'simclr')}, {settings['data'].partition(':')[0].lower()}"
            rest = {k: v for k, v in settings.items() if k not in ("data", "method", "batch_size", "micro_batch_size")}
            words = ", ".join(f"{k} {v}" for k, v in rest.items()) or "defaults"
            rows.append(
                f"| {name} | {words} | {settings['batch_size']} | {settings.get('micro_batch', '–')} "
                f"| {found['process'] / 1e6:.0f} | {found['predicted'] / 1e6:.0f} | {found['peak'] / 1e6:.0f} "
                f"| {ratio:.2f} | {found['seconds']:.0f} |"
            )
            print(rows[-1], flush=True)
            if abs(ratio - 1) > TARGET:
                off.append(f"{name} at {ratio:.2f}")
    verdict = f"Off by more than {TARGET:.0%}: {'; '.join(off)}." if off else f"All are within {TARGET:.0%}."
    text = [
        "# Predicted and measured memory",
        "",
        f"{describe()}.",
        '`python benchmarks/plan.py`. MB are 10⁶ bytes; "process" is the part that is there before the batch counts:',
        'interpreter, packages, data, weights. "CPU s" is what the prediction takes.',
        "",
        "| run | settings | batch | micro-batch | process, MB | predicted, MB | measured, MB | ratio | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        verdict,
        "",
        *(__doc__ or "").strip().splitlines()[4:],
    ]
    options.out.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
