"""The recipes' index: every file is in it, and a wheel has it all."""

import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import nearfar.training.train  # noqa: F401  is looked up below
from nearfar.cli import main
from nearfar.cli.train import config_file, take_configs
from nearfar.config import TrainConfig, completed
from nearfar.evaluation.results import Results, Row
from nearfar.recipes import REACHED, folder, names, recipe, recipes
from nearfar.recipes.listing import full_text, short_text
from nearfar.recipes.rerun import compare_rerun, rerun
from nearfar.settings import build
from tests.support.facts import facts, tells

ROOT = Path(__file__).parents[1]
KNOWN: dict[str, Any] = json.loads((folder() / REACHED).read_text(encoding="utf-8"))


def test_every_recipe_is_known_and_can_be_built() -> None:
    assert set(KNOWN) == set(names()) == {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    for each in recipes():
        build(TrainConfig, completed(yaml.safe_load(each.text)), each.name)
        assert each.about and not each.about.startswith("#")
        if each.numbers:
            assert each.command and (ROOT / str(each.file)).is_file()
            script = re.match(r"python (\S+)", each.command)
            assert (ROOT / script[1]).is_file() if script else each.command.endswith(f"recipes/{each.name}.yaml")


def test_the_first_recipe_is_the_bare_command() -> None:
    given = yaml.safe_load(recipe("glyphs-simclr").text)
    assert build(TrainConfig, completed(given), "recipe") == build(TrainConfig, completed({}), "train")


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"k-NN accuracy 46\.6 %, linear probe 54\.6 %; 12 minutes", said)
    assert max(map(len, said.splitlines())) <= 80
    assert all(f"\n{name}\n" in f"\n{said}" for name in names())


@pytest.mark.parametrize("name", names())
def test_one_in_full_is_still_yaml(name: str) -> None:
    each = recipe(name)
    text = full_text(each)
    assert text.startswith(each.text.rstrip()) and yaml.safe_load(text) == yaml.safe_load(each.text)
    assert re.search(rf"\n# .*nearfar train --config {name}\b", text)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["cifar10-simcl"], 1, "'cifar10-simcl' 'cifar10-simclr'"),
        (["cifar10-simclr", "--rerun"], 1, "python benchmarks/recipes.py"),
        (["--rerun"], 2, "--rerun --out NAME"),
        (["glyphs-clip", "--out", "x"], 2, "--out --rerun"),
    ],
)
def test_mistakes_are_told_in_a_line(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        found = main(["recipes", *words])
    except SystemExit as stop:
        found = int(str(stop.code))
    assert found == status and tells(capsys.readouterr().err.splitlines()[-1], said)


def test_a_recipe_without_numbers_says_so() -> None:
    fresh = replace(recipe("cifar10-simsiam"), numbers=())
    assert tells(short_text(fresh).splitlines()[-1], "not measured")
    assert max(map(len, short_text(recipe("emoji4-clip")).splitlines())) <= 80
    assert tells(full_text(fresh), "# not measured")
    with pytest.raises(ValueError, match=facts("cifar10-simsiam nearfar train")):
        rerun(fresh, None)


def test_a_recipe_may_be_named_to_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert take_configs(["--config", "glyphs-clip", "--epochs", "1"]) == (["glyphs-clip"], ["--epochs", "1"])
    assert take_configs(["--config=glyphs-clip"]) == (["glyphs-clip"], [])
    assert config_file("glyphs-clip") == folder() / "glyphs-clip.yaml"
    (tmp_path / "glyphs-clip").write_text("epochs: 1")  # a file of that name is the file
    assert config_file("glyphs-clip") == Path("glyphs-clip")
    with pytest.raises(ValueError, match=facts("--config")):
        take_configs(["--epochs", "1", "--config"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("glyphs-simclrr", "'glyphs-simclrr' 'glyphs-simclr'"),
        ("glyph.yaml", "--config 'glyph.yaml'"),
        ("runs/glyphs", "--config 'runs/glyphs'"),
    ],
)
@pytest.mark.parametrize("command", ["train", "plan"])
def test_a_recipe_that_is_not_there_is_told(
    command: str, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--config", name]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert tells(line, said)


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.601, "as before"), (0.579, "as before"), (0.5, "LESS"), (0.7, "more")]
)
def test_another_run_is_compared_within_the_interval(value: float, verdict: str) -> None:
    rows = [
        Row(encoder, "zero_shot", metric, number, None, None, "test", "glyphs", 2000)
        for encoder, metric, number in (("untrained", "accuracy", 0.04), ("trained", "accuracy", value))
    ]
    found = compare_rerun(recipe("glyphs-clip"), rows)
    assert [(each.number.what, each.verdict) for each in found] == [("zero-shot accuracy", verdict)]


@pytest.mark.parametrize(
    ("value", "status", "said"), [(0.94, 0, "as before"), (0.99, 0, "more"), (0.9, 1, "LESS"), (None, 1, "were not")]
)
def test_a_rerun_says_whether_it_reaches_as_much(
    value: float | None,
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a run that is none; the slow test of the demo has a whole one."""
    trained: list[TrainConfig] = []

    def run(config: TrainConfig, folder: Path, *, console: object) -> Results:
        trained.append(config)
        measured = {"knn": value, "linear": 0.985}
        return Results(
            [
                Row("trained", protocol, "accuracy", number, None, None, "test", "glyphs", 2000)
                for protocol, number in measured.items()
                if number is not None
            ]
        )

    monkeypatch.setattr("nearfar.recipes.rerun.run", run)
    assert main(["recipes", "glyphs-simclr", "--rerun", "--out", str(tmp_path / "run")]) == status
    heard = capsys.readouterr()
    assert trained == [build(TrainConfig, completed({}), "train")] and said in heard.out + heard.err


def test_a_wheel_has_the_recipes(tmp_path: Path) -> None:
    wheels = pytest.importorskip("hatchling.builders.wheel")
    (made,) = wheels.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(made) as wheel:
        inside = set(wheel.namelist())
    assert {f"nearfar/recipes/{name}.yaml" for name in names()} | {f"nearfar/recipes/{REACHED}"} <= inside
