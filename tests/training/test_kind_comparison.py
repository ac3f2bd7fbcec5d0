"""A run from scratch that ended clearly worse than it began keeps its start, and says so."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.evaluation.baselines import calibrated
from nearfar.model.load import load
from nearfar.report.next_step import next_step
from nearfar.report.run import read_run
from nearfar.report.verdict import first_line
from nearfar.training.build_method import build_method
from nearfar.training.config import AdaptConfig
from nearfar.training.kind_comparison import keep_better_start
from nearfar.training.run import Run
from nearfar.training.setup import TrainingSetup
from tests.support.facts import tells
from tests.training.runs import QUIET, config
from tests.training.test_view_trial import pictures


@pytest.fixture(scope="module")
def tinted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four folders, told apart by hue, which a network of random weights sees."""
    return pictures(tmp_path_factory.mktemp("tinted") / "photos", colors=True)


def on(data: str, keep: str = "best", **settings: object) -> TrainConfig:
    read = DataConfig(path=data, stored_size=32, validation=0.2, **settings)  # type: ignore[arg-type]
    return config("simclr", data=read, adapt=AdaptConfig(keep=keep), steps=2)  # type: ignore[arg-type]


def spoil(network: nn.Module) -> None:
    """Forget everything but brightness."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.01)


def test_the_start_is_kept_where_it_has_clearly_more_neighbors_of_one_kind(tinted: str) -> None:
    setup = TrainingSetup(on(tinted), QUIET)
    assert keep_better_start(setup) is None  # not trained yet: the same but for BatchNorm statistics
    spoil(setup.method.encoder)
    found = keep_better_start(setup)
    assert found is not None and found.step == 0 and found.shared == "folder" and found.samples == len(setup.train)
    assert found.end_share < found.start_share and found.gain == pytest.approx(found.end_share - found.start_share)
    assert tells(found.line(), f"{found.end_share:.1%} {found.start_share:.1%} 192")
    start = build_method(setup.config, len(setup.train)).encoder
    calibrated(start, setup.splits.gallery, setup.modality.prepare)
    for name, x in setup.method.encoder.state_dict().items():
        torch.testing.assert_close(x, start.state_dict()[name])


def test_the_end_stays_where_it_was_asked_for_or_nothing_tells_kinds(tinted: str, tmp_path: Path) -> None:
    setup = TrainingSetup(on(tinted, keep="end"), QUIET)
    spoil(setup.method.encoder)
    assert keep_better_start(setup) is None
    alike = tmp_path / "alike"
    alike.mkdir()
    for path in Path(tinted).glob("*/*.png"):
        (alike / f"{path.parent.name}{path.stem}.png").symlink_to(path)
    setup = TrainingSetup(on(str(alike)), QUIET)
    spoil(setup.method.encoder)
    assert keep_better_start(setup) is None


def test_the_run_says_it_first_and_advises_as_after_a_loss(
    tinted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(on(tinted), tmp_path / "run", resume=False, console=QUIET)
    fit = run._fit

    def fit_badly() -> None:
        fit()
        spoil(run.setup.method.encoder)

    monkeypatch.setattr(run, "_fit", fit_badly)
    run.execute()
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["adaptation"]["kept"] == "start" and "start is kept" in card["verdict"]
    record = read_run(tmp_path / "run")
    assert first_line(record) == ("warning", card["verdict"]) and next_step(record) is not None
    kept = load(tmp_path / "run").state_dict()
    assert all(torch.equal(x, kept[name]) for name, x in run.trained_encoder().state_dict().items())
