"""Lightning's callbacks and loggers in a run: they see what `metrics.jsonl` has, may end it, are asked for again."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import nearfar
from nearfar.config import TrainConfig
from nearfar.training._lightning import lightning
from nearfar.training.loggers import TrackioLogger
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from nearfar.training.train import resume_run
from tests.support.facts import facts
from tests.training.runs import QUIET, config, stop_after

ModelCheckpoint = lightning.pytorch.callbacks.ModelCheckpoint
CSVLogger = lightning.pytorch.loggers.CSVLogger
SMALL: dict[str, Any] = {
    "backbone": "micro",
    "image_size": 16,
    "batch_size": 16,
    "steps": 6,
    "checkpoint_every": 1,
    "health_every": 1,
    "views": "simclr",
    "embedding": "plain",
}


@pytest.fixture(autouse=True)
def _quick(train_only: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def logged(folder: str, name: str) -> list[float]:
    return [json.loads(line)[name] for line in Path(folder, "metrics.jsonl").read_text().splitlines()]


class Watch(lightning.Callback):
    """Keeps the losses that it sees, and ends the run after some steps."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.losses: list[float] = []
        self.stop_after = stop_after

    def on_train_batch_end(self, trainer: Any, module: Any, *arguments: Any) -> None:
        self.losses.append(float(trainer.callback_metrics["loss"]))
        if len(self.losses) == self.stop_after:
            trainer.should_stop = True


def test_a_callback_sees_the_metrics_of_each_step_and_changes_nothing() -> None:
    watch = Watch()
    plain = nearfar.train("glyphs:100", out="plain", **SMALL)
    watched = nearfar.train("glyphs:100", out="watched", callbacks=[watch], **SMALL)
    assert watch.losses == pytest.approx(logged("watched", "loss"))
    for name, x in plain.state_dict().items():
        assert torch.equal(x, watched.state_dict()[name])


def test_a_callback_that_ends_the_run_leaves_a_finished_one(capsys: pytest.CaptureFixture[str]) -> None:
    encoder = nearfar.train("glyphs:100", out="ended", callbacks=[Watch(stop_after=3)], **SMALL)
    assert len(logged("ended", "loss")) == 3 and Path("ended/model.safetensors").is_file()
    assert torch.equal(next(nearfar.load("ended").parameters()), next(encoder.parameters()))
    assert (Path("ended/checkpoints") / "step-000000003.pt").is_file()


def test_a_resumed_run_asks_for_callbacks_and_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(TrainingStopped):
            nearfar.train("glyphs:100", out="run", callbacks=[Watch()], logger=CSVLogger("csv"), **SMALL)
    for resume in (lambda: nearfar.train(resume="run"), lambda: resume_run(Path("run"))):
        with pytest.raises(ValueError, match=facts("callbacks Watch callbacks=[]")):
            resume()
    with pytest.raises(ValueError, match=facts("logger CSVLogger")):
        nearfar.train(resume="run", callbacks=[Watch()])
    watch = Watch()
    nearfar.train(resume="run", callbacks=[watch], logger=[])
    assert len(watch.losses) == 4


def test_a_logger_object_gets_the_metrics() -> None:
    nearfar.train("glyphs:100", out="run", logger=["tensorboard", CSVLogger("csv", name="n", version="v")], **SMALL)
    header, *rows = Path("csv/n/v/metrics.csv").read_text().splitlines()
    place = header.split(",").index("loss")
    assert [float(row.split(",")[place]) for row in rows] == pytest.approx(logged("run", "loss"))
    assert list(Path("run/tensorboard").glob("events*"))
    assert TrainConfig.from_yaml(Path("run/config.yaml")).logger == "tensorboard"


def test_callbacks_that_lightning_wants_to_be_asked_about_work() -> None:
    keep = ModelCheckpoint(dirpath="kept", every_n_train_steps=3, save_top_k=-1)
    nearfar.train("glyphs:100", out="run", callbacks=[keep], **SMALL)
    assert len(list(Path("kept").glob("*.ckpt"))) == 2


def test_what_is_no_callback_or_logger_is_refused() -> None:
    with pytest.raises(TypeError, match=facts("callbacks print")):
        nearfar.train("glyphs:100", callbacks=[print])
    with pytest.raises(TypeError, match=facts("logger 3")):
        nearfar.train("glyphs:100", logger=3)
    with pytest.raises(ValueError, match=facts("--logger tensorbord wandb")):
        Run(config("simclr", logger="tensorbord"), Path("x"), resume=False, console=QUIET)


def test_a_logger_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=facts("--logger mlflow 'nearfar[mlflow]'")):
        Run(config("simclr", logger="mlflow"), Path("x"), resume=False, console=QUIET)


def test_trackio_gets_metrics_and_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import SimpleNamespace

    rows: list[Any] = []
    log = lambda metrics, step=None: rows.append((metrics, step))  # noqa: E731, "step" among the metrics is refused
    run = SimpleNamespace(log=log, finish=lambda: rows.append("ended"))
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(init=lambda **given: run))
    logger = TrackioLogger("project", "name", {})
    logger.log_metrics({"loss": 1.0}, 3)
    logger.finalize("success")
    assert rows == [({"loss": 1.0}, 3), "ended"]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_the_real_packages_log_offline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec(name) is None:  # not imported before the environment is set, which trackio reads then
        pytest.skip(f"{name} is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # set here too, so that it ends with the test
    monkeypatch.setenv("TRACKIO_DIR", str(Path.cwd() / "trackio"))
    nearfar.train("glyphs:100", out="run", logger=name, **SMALL)
    files = {
        "wandb": "run/wandb/offline-run-*/*.wandb",
        "mlflow": "run/mlruns/*/*/metrics/loss",
        "trackio": "trackio/nearfar.db",
    }
    assert logged("run", "loss") and list(Path.cwd().glob(files[name]))
