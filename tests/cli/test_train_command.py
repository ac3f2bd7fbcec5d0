"""`nearfar train`, and the flags that `nearfar plan` shares: what is asked for, and what is told where it fails."""

import sys
from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.evaluate import Results


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """In an empty folder, the configurations that would be trained or planned; none is."""
    found: list[TrainConfig] = []

    def run(config: TrainConfig, folder: Path, *, console: object) -> Results:
        found.append(config)
        return Results()

    def plan(config: TrainConfig, budget: int) -> None:
        found.append(config)
        raise ValueError("that is all")

    import nearfar.train.plan

    monkeypatch.setattr(sys.modules["nearfar.train"], "run", run)
    monkeypatch.setattr(nearfar.train.plan, "plan", plan)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.mark.parametrize("command", [["train"], ["plan", "--memory", "1GB"]])
@pytest.mark.parametrize(
    "words",
    [
        "--epochs 1 --options.dim 64 --config run.yaml",
        "--config run.yaml --epochs 1 --options.dim 64",
        "--epochs 1 --config=run.yaml --options.dim=64",
        "--epochs=1 --config base.yaml --options.dim 64 --config run.yaml",
    ],
)
def test_flags_override_the_file_wherever_they_stand(command: list[str], words: str, asked: list[TrainConfig]) -> None:
    Path("run.yaml").write_text("data: glyphs:50\nepochs: 3\nseed: 5\noptions: {dim: 32, temperature: 0.3}\n")
    Path("base.yaml").write_text("epochs: 9\nseed: 4\n")
    main([*command, *words.split()])
    (config,) = asked
    assert (config.data, config.epochs, config.seed) == ("glyphs:50", 1, 5)
    assert config.options["dim"] == 64 and config.options["temperature"] == 0.3


def test_the_data_stay_before_a_recipe(asked: list[TrainConfig]) -> None:
    main(["train", "--data", "labelled", "--config", "cifar10-simclr"])
    assert asked[0].data == "labelled" and asked[0].options == {"temperature": 0.5}
