"""One command to try next, by what was measured; each rule alone, and their order."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearfar.cli.train import configured
from nearfar.config import TrainConfig
from nearfar.report import next_step as rules
from nearfar.report.judgement import judge
from nearfar.report.next_step import NextStep, next_step
from nearfar.report.run import RunRecord
from tests.report.test_judgement import compared, measured, raw, start

CONFIG = {
    "data": {"path": "photos"}, "method": "moco", "image_size": 64, "epochs": 20, "batch_size": 64, "backbone": "tiny",
    "modality": "image", "options": {}, "views": {},
}  # fmt: skip


def record(*comparisons: Any, steps: int = 5000, loss: Any = None, facts: Any = None, **settings: Any) -> RunRecord:
    """A finished run; its loss has come to rest."""
    loss = loss or (lambda s: 5.0 if s < steps / 10 else 1.0)
    marks = [steps * (i + 1) // 40 for i in range(40)]
    metrics = [{"step": s, "epoch": 20 * s / steps, "loss": loss(s), "bound": 2.0, "ceiling": 4.0} for s in marks]
    results = measured(*(comparisons or (start(2, 2), raw(2, 2))))
    results.facts.update({"samples": 5000.0, **(facts or {})})
    return RunRecord("run", Path("runs/photos"), config={**CONFIG, **settings}, metrics=metrics, results=results)


def said(rule: Any, run: RunRecord) -> NextStep | None:
    found: NextStep | None = rule(run, judge(run.results))
    return found


def flags(step: NextStep | None) -> str:
    assert step is not None
    words = shlex.split(step.command)
    assert words[:4] == ["nearfar", "train", "--config", "runs/photos/config.yaml"] and words[-2] == "--out"
    assert not Path(words[-1]).exists()
    return " ".join(words[4:-2])


def test_too_few_steps() -> None:
    assert flags(said(rules.few_steps, record(steps=180))) == "--epochs 112"
    assert flags(said(rules.too_few_steps, record(steps=180))) == "--epochs 112"
    assert said(rules.too_few_steps, record(steps=200)) is None
    assert said(rules.few_steps, record(steps=1000)) is None
    better = start(9, 0), raw(9, 0)
    assert flags(next_step(record(*better, steps=100))) == "--epochs 200"  # also if it is better already
    assert next_step(record(*better, steps=300)).command == "nearfar explore runs/photos"  # type: ignore[union-attr]
    given_in_steps = record(steps=180)
    given_in_steps.config["steps"] = 180
    assert flags(said(rules.few_steps, given_in_steps)) == "--steps 1000"
    assert flags(said(rules.longer, given_in_steps)) == "--steps 360"


def test_a_loss_that_still_falls() -> None:
    falling = record(loss=lambda s: 5 - 4 * s / 5000)
    assert flags(said(rules.still_falling, falling)) == "--epochs 40"
    assert said(rules.still_falling, record()) is None
    assert said(rules.still_falling, record(loss=lambda s: 1.0)) is None


def test_images_much_larger_than_the_views() -> None:
    assert flags(said(rules.small_images, record(facts={"image_side": 480}, image_size=32))) == "--image-size 64"
    assert flags(said(rules.small_images, record(facts={"image_side": 480}))) == "--image-size 128"
    assert said(rules.small_images, record(facts={"image_side": 100})) is None
    assert said(rules.small_images, record(facts={"image_side": 480}, modality="sound")) is None
    assert said(rules.small_images, record()) is None  # not known


def test_colors_that_the_views_destroy(monkeypatch: pytest.MonkeyPatch) -> None:
    histogram = compared(0, 9, "colour histogram", "baseline")
    monkeypatch.setattr(rules, "views_have", lambda name: name == "color")
    assert flags(said(rules.colors_lost, record(start(9, 0), histogram))) == "--views.color keep"
    assert flags(said(rules.colors_lost, record(start(0, 9), raw(9, 0)))) == "--views.color keep"
    assert said(rules.colors_lost, record(start(0, 9), raw(9, 0), steps=100)) is None  # too few steps to tell
    assert said(rules.colors_lost, record(start(9, 0), raw(9, 0))) is None
    assert said(rules.colors_lost, record(start(9, 0), histogram, views={"color": "keep"})) is None
    monkeypatch.setattr(rules, "views_have", lambda name: False)
    assert said(rules.colors_lost, record(start(9, 0), histogram)) is None  # a flag that is not there is not named


def test_temperature_and_batch() -> None:
    assert flags(said(rules.high_temperature, record(method="simclr"))) == "--options.temperature 0.2"
    assert said(rules.high_temperature, record(method="simclr", options={"temperature": 0.1})) is None
    assert said(rules.high_temperature, record(method="byol")) is None
    assert said(rules.high_temperature, record(method="simclr", modality="sound")) is None  # it is right there
    full = record()
    full.metrics[-1].update(bound=3.95)
    assert flags(said(rules.small_batch, full)) == "--batch-size 128"
    assert said(rules.small_batch, record()) is None


def test_copies_go_to_the_doctor() -> None:
    assert said(rules.copies, record(facts={"copies": 0.2}, modality="text")) is None
    found = said(rules.copies, record(facts={"copies": 0.2}))
    assert found is not None and found.command == "nearfar doctor photos -o doctor" and "20%" in found.reason
    assert said(rules.copies, record(facts={"copies": 0.001})) is None
    grouped = record(facts={"copies": 0.2}, data={"path": "photos", "groups_file": "doctor/groups.csv"})
    assert said(rules.copies, grouped) is None


def test_a_start_that_comes_as_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    photos: dict[str, Any] = {"facts": {"image_side": 128}, "backbone": "quick"}
    monkeypatch.setattr(rules, "is_installed", lambda name: True)
    found = said(rules.packaged_start, record(**photos))
    wanted = "nearfar train --data photos --weights package:efficientnet-lite0 --out runs/photos-2"
    assert found is not None and found.command == wanted  # a new run, whose settings are those of adaptation
    assert next_step(record(start(9, 0), raw(9, 0), **photos)) == found  # also if it is better already
    for other in ({"weights": "w.safetensors"}, {"pretrained": True}, {"facts": {"image_side": 64}},
                  {"modality": "series"}, {"modality": "text"}, {"data": {"path": "python:array"}}):  # fmt: skip
        assert said(rules.packaged_start, record(**{**photos, **other})) is None
    monkeypatch.setattr(rules, "is_installed", lambda name: False)
    found = said(rules.packaged_start, record(**photos))
    assert found is not None and found.command == f"{rules.INSTALL} && {wanted}"
    found = said(rules.packaged_start, record(modality="text"))
    assert found is not None and "package:minilm" in found.command


def test_published_weights_of_a_network() -> None:
    assert flags(said(rules.published_start, record(backbone="resnet50"))) == "--pretrained true"
    assert said(rules.published_start, record(backbone="quick")) is None
    assert said(rules.published_start, record(backbone="resnet50", pretrained=True)) is None
    assert said(rules.published_start, record(backbone="resnet50", weights="w.safetensors")) is None
    assert said(rules.published_start, record(backbone="resnet50", modality="series")) is None


def test_one_command_by_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "views_have", lambda name: True)
    histogram = compared(0, 9, "colour histogram", "baseline")
    everything: dict[str, Any] = {"facts": {"image_side": 480, "samples": 300}, "image_size": 32}
    assert "--epochs" in str(next_step(record(start(0, 9), histogram, steps=180, **everything)))
    assert "--views.color" in str(next_step(record(start(0, 9), histogram, steps=900, **everything)))
    assert "--weights" in str(next_step(record(start(2, 2), raw(9, 0), steps=900, **everything)))
    everything["weights"] = "timm:resnet18"
    assert "--image-size" in str(next_step(record(start(2, 2), raw(9, 0), steps=900, **everything)))
    assert "--epochs" in str(next_step(record(start(2, 2), raw(9, 0), steps=900)))
    better = next_step(record(start(9, 0), raw(9, 0)))
    assert better is not None and better.command == "nearfar explore runs/photos"
    stopped = record()
    stopped.metrics[:] = stopped.metrics[:20]
    assert next_step(stopped) == NextStep("nearfar train --resume runs/photos", "it was stopped before its end")
    assert next_step(RunRecord("nothing")) is None


def test_what_began_in_python_goes_on_in_python() -> None:
    """The command line has no arrays and networks of a program."""
    array: dict[str, Any] = {"data": {"path": "python:array-60"}}
    short = record(steps=100, facts={"copies": 0.2}, **array)
    short.config["steps"] = 100
    found = next_step(short)
    assert found is not None and found.command == "nearfar.train(..., steps=1000)" and "100 steps" in found.reason
    own_network = record(compared(0, 9, "colour histogram", "baseline"), start(0, 9), backbone="python:Net")
    found = said(rules.colors_lost, own_network)
    assert found is not None and found.command == "nearfar.train(..., views={'color': 'keep'})"
    stopped = record(**array)
    stopped.metrics[:] = stopped.metrics[:20]
    found = next_step(stopped)
    assert found is not None and found.command == "nearfar.train(..., resume='runs/photos')"


@pytest.mark.parametrize("rule", [rules.few_steps, rules.small_images, rules.longer])
def test_the_command_is_one_that_nearfar_train_takes(rule: Any, tmp_path: Path) -> None:
    """The file and the flags make a configuration that differs by just these settings."""
    from jsonargparse import ArgumentParser

    from nearfar.cli.train import SHORT, full_flags, take_configs

    config = TrainConfig(data="photos", modality="image")  # type: ignore[arg-type]
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    run = record(steps=180, facts={"image_side": 480})
    run = replace(run, folder=tmp_path)
    step = said(rule, run)
    assert step is not None
    names, words = take_configs(shlex.split(step.command)[2:])
    parser = ArgumentParser(exit_on_error=False, default_env=False)
    parser.add_argument("--out", type=str | None)
    parser.add_class_arguments(TrainConfig, as_group=False)
    options = parser.parse_args(full_flags(words, SHORT), defaults=False)
    assert configured([Path(name) for name in names], options) != config
