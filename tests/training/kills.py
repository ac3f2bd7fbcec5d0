"""A run that is killed again and again, for the drills: real processes, really killed.

One process imports everything and then forks the runs, so that a kill costs no second import.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from nearfar.model import checkpoint

PROGRAM = "from tests.training.kills import forked; import sys; forked(sys.argv[1], *map(int, sys.argv[2:]))"


def killed_again_and_again(
    folder: Path, *, kills: int, seed: int, epochs: int = 4
) -> tuple[int, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """How often a run was killed, the last state of one that never was, and of the one that was."""
    words = [sys.executable, "-c", PROGRAM, str(folder), str(kills), str(seed), str(epochs)]
    root = Path(__file__).parents[2]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    states = [checkpoint.load_newest(folder / name / "checkpoints")[0] for name in ("whole", "killed")]
    assert states[0]["step"] == states[1]["step"]
    return int(done.stdout.split()[-1]), *(flat(state) for state in states)


def flat(state: dict[str, object]) -> dict[str, torch.Tensor]:
    """Weights and the optimizer's memory, by name."""
    moments = state["optimizer"]["state"]  # type: ignore[index]
    inside = {f"{i}/{name}": x for i, each in moments.items() for name, x in each.items() if torch.is_tensor(x)}
    return {**state["method"], **inside}  # type: ignore[dict-item]


def newest(run: Path) -> int:
    """The step of the newest checkpoint, 0 where there is none."""
    return max((int(path.stem.split("-")[1]) for path in checkpoint.numbered(run / "checkpoints")), default=0)


def forked(folder: str, kills: int, seed: int, epochs: int) -> None:
    """Run "whole" once; then "killed" until it has been killed so often, and to its end."""
    from nearfar.evaluation.results import Results
    from nearfar.training.run import Run
    from nearfar.training.train import resume_run, run
    from tests.training.runs import QUIET, config

    Run._evaluate = lambda self: Results()  # type: ignore[method-assign]
    settings = config("moco", epochs=epochs, checkpoint_every=3)
    begun = time.monotonic()
    run(settings, Path(folder) / "whole", console=QUIET)
    taken, total = time.monotonic() - begun, newest(Path(folder) / "whole")
    chance, count, place = random.Random(seed), 0, Path(folder) / "killed"
    while True:
        child = os.fork()
        if child == 0:
            try:
                if (place / "config.yaml").exists():
                    resume_run(place, console=QUIET)
                else:
                    run(settings, place, console=QUIET)
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr)
                os._exit(1)
        if count < kills:
            # At a random moment, and not later than a step by which each of the kills has its turn before the end.
            late, enough = time.monotonic() + chance.uniform(0.0, 0.5 * taken), total * (count + 1) / (kills + 4)
            while time.monotonic() < late and newest(place) < enough:
                time.sleep(0.005)
            if os.waitpid(child, os.WNOHANG) != (0, 0):
                break  # it came to its end, or to an error
            os.kill(child, signal.SIGKILL)
            count += 1
        status = os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            break
    print(count)
