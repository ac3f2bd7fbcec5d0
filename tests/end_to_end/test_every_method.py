"""Each method, through the public door, learns what its untrained encoder does not know."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from nearfar.config import TrainConfig, kind_of
from nearfar.data.config import DataConfig
from nearfar.evaluation.results import Results
from nearfar.methods import METHODS, SimCLR, Step
from nearfar.methods.method import Encoded
from nearfar.modalities.config import ViewsConfig
from nearfar.training.config import OptimizerConfig
from nearfar.training.run import Run
from tests.end_to_end.textures import write

OF_IMAGES = [name for name in METHODS if kind_of("", name, None) == "image"]
# The papers' widths, queues, momenta and rates are for long runs: these are for one or two hundred steps.
SETTINGS: dict[str, dict[str, Any]] = {
    "barlow_twins": {"options": {"dim": 128, "hidden": 128}, "lr": 0.005, "epochs": 8},
    "byol": {"options": {"dim": 256, "hidden": 1024, "momentum": 0.99}, "lr": 0.4, "epochs": 10, "batch_size": 32},
    "densecl": {"options": {"queue_size": 256, "momentum": 0.9, "batch_norm": True}, "epochs": 8, "batch_size": 32},
    "instdisc": {"options": {"noise": 256, "held_after": 10_000}, "lr": 0.03, "epochs": 16, "batch_size": 32},
    "invaspread": {"epochs": 6, "batch_size": 32},
    "moco": {"options": {"queue_size": 256, "momentum": 0.9, "batch_norm": True}, "epochs": 6},
    "moco_v1": {
        "options": {"queue_size": 256, "momentum": 0.9, "temperature": 0.2},
        "epochs": 8,
        "batch_size": 32,
    },
    "moco_v3": {"options": {"dim": 64, "hidden": 256, "momentum": 0.9}, "epochs": 14, "batch_size": 32},
    "nnclr": {
        "options": {"queue_size": 512, "hidden": 512, "predictor_hidden": 1024, "temperature": 0.5},
        "lr": 0.25,
        "epochs": 10,
        "batch_size": 32,
    },
    "pirl": {"options": {"noise": 256, "held_after": 10_000}, "lr": 0.03, "epochs": 12, "batch_size": 32},
    "simclr": {},
    "simclr_v2": {"options": {"temperature": 0.3}, "epochs": 6},
    "simsiam": {"options": {"dim": 1024, "hidden": 512}, "lr": 0.25, "epochs": 10, "batch_size": 32},
    "supcon": {"options": {"batch_norm": True}, "epochs": 6},
    "vicreg": {"options": {"dim": 128, "hidden": 128}, "lr": 0.03, "epochs": 6},
}
# A few hundred steps on 640 pictures are too few for these to beat their untrained start.
TOO_SHORT = {"diet", "dino", "swav"}
GRAY = {"cmc"}  # the textures have no colors to tell them by
QUICK = {"simclr", "moco"}  # the others are among the slow tests
MARGIN = 0.08  # a good half of what each reaches; without learning there are 4 points at most


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The same sums on any number of cores, and no waiting for a second one that is busy: the steps are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write(tmp_path_factory.mktemp("textures"))


def gain(method: str, data: tuple[Path, Path], out: Path, *, longer: int = 1, seed: int = 0) -> float:
    """How much more of the test part k-NN gets right with the trained encoder than with the untrained one."""
    train, test = data
    settings = {"options": {}, "lr": 0.12, "epochs": 4, "batch_size": 64} | SETTINGS[method]
    config = TrainConfig(  # as it is, without automatic settings
        data=DataConfig(str(train), test=str(test), stored_size=20, validation=0.0),
        method=method,
        backbone="micro",
        image_size=16,
        epochs=longer * settings["epochs"],
        batch_size=settings["batch_size"],
        seed=seed,
        options=settings["options"],
        views=ViewsConfig("moco_v1"),  # without blur, which at this size takes the textures away
        optimizer=OptimizerConfig(lr=settings["lr"]),
        health_every=1000,
        embedding="plain",
    )
    Run(config, out, resume=False, console=Console(quiet=True)).execute()
    found = Results.load(out / "evaluation.json")
    trained, untrained = found.value("trained", "knn"), found.value("untrained", "knn")
    assert trained is not None and untrained is not None
    return trained - untrained


def test_every_method_is_trained_here() -> None:
    assert SETTINGS.keys() | TOO_SHORT | GRAY == set(OF_IMAGES)


@pytest.mark.parametrize("method", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in SETTINGS])
def test_a_few_seconds_beat_the_untrained_encoder(method: str, data: tuple[Path, Path], tmp_path: Path) -> None:
    assert gain(method, data, tmp_path / "run") > MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("method", SETTINGS)
def test_longer_runs_of_other_seeds_do_too(method: str, seed: int, data: tuple[Path, Path], tmp_path: Path) -> None:
    assert gain(method, data, tmp_path / "run", longer=3, seed=seed) > MARGIN


def test_a_method_that_pairs_strangers_does_not(
    data: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The margin can be missed: training as such, with wrong positives, does not reach it."""
    contrast = SimCLR.contrast

    def strangers(self: SimCLR, encoded: Encoded) -> Step:
        return contrast(self, {**encoded, "z2": torch.roll(encoded["z2"], 1, 0)})

    monkeypatch.setattr(SimCLR, "contrast", strangers)
    assert gain("simclr", data, tmp_path / "run") < MARGIN
