"""The state that a resumed run continues from, and what may differ from the run before."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from nearfar.model import checkpoint
from nearfar.model.save import CARD
from nearfar.progress import print_line
from nearfar.training.setup import TrainingSetup

MAY_CHANGE = ("epochs", "steps", "processes", "nodes", "strategy")  # settings that a resumed run may change

NEEDED = ("config", "step", "method", "optimizer", "scaler", "best")  # of a checkpoint


def restore_newest(setup: TrainingSetup, folder: Path, console: Console) -> dict[str, Any] | None:
    """Load the newest checkpoint into the method; None if the run was killed before its first checkpoint.

    Returns:
        The state of the checkpoint.
    """
    if not any((folder / "checkpoints").glob("step-*")) and not (folder / CARD).exists():
        console.print("no checkpoint yet; the run starts at step 0")
        for name in ("metrics.jsonl", "verdicts.json"):
            (folder / name).unlink(missing_ok=True)
        return None
    state, path, broken = checkpoint.load_newest(folder / "checkpoints", NEEDED)
    for file in broken:
        console.print(f"[yellow]{file.name} cannot be read; continuing from {path.name}[/]")
    checkpoint.set_aside(broken)
    _print_changed_settings(setup, state, path, console)  # before the data: another seed is another split
    if state.get("data", setup.fingerprint) != setup.fingerprint:
        raise ValueError(
            f"the data of {folder} have changed since {path.name} was written: {setup.config.data.path} now has "
            f"{len(setup.train):,} training samples that are not the same ones; start a new run"
        )
    if state["step"] > setup.total_steps:
        raise ValueError(
            f"{folder} has made {state['step']} steps, more than the {setup.total_steps} of these settings; "
            "leave --epochs and --steps out, or raise them"
        )
    setup.method.load_state_dict(state["method"])
    console.print(f"resuming at step {state['step']} of {setup.total_steps}, from {path.name}")
    return state


def _print_changed_settings(setup: TrainingSetup, state: dict[str, Any], path: Path, console: Console) -> None:
    """Name the settings that differ from those of the checkpoint: changed by flags, or in config.yaml."""
    before = json.loads(state["config"])
    now = json.loads(json.dumps(asdict(setup.config)))
    old, new = ({key: each.pop(key, None) for key in MAY_CHANGE} for each in (before, now))
    if changed := checkpoint.changed_keys(old, new):
        print_line(console, f"changed since {path.name}: {'; '.join(changed)}")
    if changed := checkpoint.changed_keys(before, now):
        print_line(
            console,
            f"config.yaml has changed since {path.name} was written, and the run continues with the new settings: "
            + "; ".join(changed),
        )
