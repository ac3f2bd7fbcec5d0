"""Files of a run folder that are neither checkpoints nor results: environment, skipped samples, failed starts."""

import json
import platform
import shutil
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console

import nearfar
from nearfar.data.cache import replacing
from nearfar.data.dataset import Skipped, how_many
from nearfar.evaluation.splits import write_splits
from nearfar.progress import print_line
from nearfar.training.attachments import FILE as ATTACHMENTS
from nearfar.training.setup import TrainingSetup

# What a run writes before its first step.
_BEFORE_TRAINING = {"lock", "config.yaml", "environment.json", "splits.json", "splits.npz", "views.png"}
_BEFORE_TRAINING |= {"views.txt", "tokenizer.json", "verdicts.json", "skipped.txt", "clipped.txt", ATTACHMENTS}


def write_run_files(setup: TrainingSetup, folder: Path) -> None:
    """The configuration, the environment and the splits, before the first step."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "config.yaml") as fresh:  # atomic: other programs may be reading it
        fresh.write_text(setup.config.to_yaml(), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps(environment(setup.device), indent=1))
    setup.attachments.save(folder)
    write_splits(folder, setup.modality, setup.splits)


def environment(device: torch.device) -> dict[str, object]:
    """Versions and hardware that the numbers of a run depend on."""
    return {
        "nearfar": nearfar.__version__,
        "torch": torch.__version__,
        "lightning": version("lightning"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(device),
        "threads": torch.get_num_threads(),
    }


def list_skipped(skipped: Sequence[Skipped], folder: Path, console: Console) -> None:
    """Write the samples that could not be used (files, rows, captions, texts) to skipped.txt, and print how many."""
    for many in [s for s in skipped if s.samples != 1][:5]:  # shards and folders
        print_line(console, f"{many.path}: {many.reason}")
    path = folder / "skipped.txt"
    path.write_text("".join(f"{s.path}\t{s.reason}\n" for s in skipped), encoding="utf-8")
    what = "sample, caption or text" if (count := how_many(skipped)) == "1" else "samples, captions or texts"
    print_line(console, f"{count} {what} could not be used; the reasons are in {path}")


def remove_failed_start(folder: Path) -> None:
    """Remove the folder of a run that failed before its first step, unless it holds anything else."""
    if {entry.name for entry in folder.iterdir()} <= _BEFORE_TRAINING:
        with suppress(OSError):  # some systems do not remove open files
            shutil.rmtree(folder)
