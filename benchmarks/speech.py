"""Spoken digits of speakers never heard: what encoders trained without labels know of them.

    .venv/bin/python benchmarks/speech.py --data FOLDER [--runs RUNS] [--only byol_a cpc] [--out FILE]

`--data` holds `fsdd/recordings`, the Free Spoken Digit Dataset. Each `recipes/fsdd-METHOD.yaml` is trained on the
recordings of four speakers without their labels; two others, george and theo, are heard in the test alone. Then, with
the labels of the four: nearest neighbours and a linear readout on frozen features, beside mean and deviation of the
log-mels over time and the same network untrained; fine-tuning on 1, 5 and 10 recordings of each digit, beside the same
network from scratch; and connected digits, recognised by a recurrent head and CTC on frozen frames. Settings were
chosen among the four training speakers, each of them in turn left out of the readout; test speakers serve for nothing
but the numbers shown.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from machine import describe

ROOT = Path(__file__).parent.parent
METHODS = {"byol_a": "BYOL-A", "simclr": "SimCLR", "cpc": "CPC"}
FEW = ["--protocols.finetune.per_class", "[1,5,10]"]
MEASURES = {  # beyond the readout; CPC's network is slow on a CPU, so that it has one draw of labels and fewer epochs
    "byol_a": {"finetune": [*FEW, "--seeds", "3"], "ctc": []},
    "cpc": {"finetune": [*FEW, "--seeds", "1", "--protocols.finetune.epochs", "15"]},
}


def nearfar(*arguments: str, where: Path) -> None:
    """The command, as a user gives it."""
    command = [sys.executable, "-m", "nearfar", *arguments]
    print("$ nearfar", *arguments, flush=True)
    subprocess.run(command, cwd=where, env={**os.environ, "PYTHONUNBUFFERED": "1"}, check=True)


def measured(run: Path) -> dict[tuple[str, str, str], dict[str, float]]:
    rows = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))["results"]
    return {(row["encoder"], row["protocol"], row["metric"]): row for row in rows}


def cell(row: dict[str, float] | None) -> str:
    if row is None:
        return "–"
    spread = f" ({row['low']:.1%} to {row['high']:.1%})" if row["low"] is not None else ""
    return f"{row['value']:.1%}{spread}"


def table(title: str, protocol: str, metrics: dict[str, str], runs: dict[str, Path]) -> str:
    """One protocol: a row for each encoder, a column for each metric."""
    lines = [f"| {title} | {' | '.join(metrics.values())} |", "|" + "---|" * (len(metrics) + 1)]
    for method, run in runs.items():
        found = measured(run)
        names = {"trained": METHODS[method], "untrained": f"{METHODS[method]}'s network, untrained"}
        if run is next(iter(runs.values())):
            names["raw"] = "log-mels"
        for encoder, name in names.items():
            cells = [cell(found.get((encoder, protocol, metric))) for metric in metrics]
            if any(text != "–" for text in cells):
                lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def written(runs: dict[str, Path]) -> str:
    tuned = {f"accuracy, {count} a class": f"{count} of each digit" for count in (1, 5, 10)}
    return f"""# Speech: spoken digits, speakers held out

{describe()}.
`python benchmarks/speech.py --data FOLDER`, one run of each recipe;
in brackets 95 % intervals over the 1,000 test recordings. Fine-tuning: BYOL-A over three draws of labels, with the
intervals of their mean; CPC of one draw, 15 epochs at most.

{table("readout of frozen features, accuracy", "knn", {"accuracy": "nearest neighbours"}, runs)}

{table("readout of frozen features, accuracy", "linear", {"accuracy": "linear"}, runs)}

{table("fine-tuning, accuracy", "finetune", tuned, runs)}

{table("connected digits", "ctc", {"word error rate": "word error rate"}, runs)}

{__doc__.strip().split(chr(10) * 2)[2]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/speech"), help="finished ones in there stay")
    parser.add_argument("--only", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "speech.md")
    options = parser.parse_args()

    runs = {method: (options.runs / method).resolve() for method in METHODS if method in options.only}
    for method, run in runs.items():
        if not (run / "evaluation.json").is_file():
            recipe = str(ROOT / "recipes" / f"fsdd-{method}.yaml")
            nearfar("train", "--config", recipe, "--out", str(run), where=options.data)
        for protocol, settings in MEASURES.get(method, {}).items():
            if not any(key[1] == protocol for key in measured(run)):
                nearfar("evaluate", str(run), "--protocol", protocol, *settings, where=options.data)
    text = written(runs)
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
