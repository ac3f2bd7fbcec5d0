"""`nearfar train`, and the flags that `nearfar plan` shares: what is asked for, and what is told where it fails."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from PIL import Image

from nearfar.cli import main
from nearfar.cli.train import SHORT, full_flags, positional_data
from nearfar.config import TrainConfig
from nearfar.evaluation.results import Results
from nearfar.methods import SimCLR
from tests.support.facts import tells


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """In an empty folder, the configurations that would be trained or planned; none is."""
    found: list[TrainConfig] = []

    def run(config: TrainConfig, folder: Path, *, console: object, all_metrics: bool) -> Results:
        found.append(config)
        return Results()

    def plan(config: TrainConfig, budget: int) -> None:
        found.append(config)
        raise ValueError("that is all")

    import nearfar.training.memory_plan

    monkeypatch.setattr(import_module("nearfar.training.train"), "run", run)
    monkeypatch.setattr(nearfar.training.memory_plan, "plan", plan)
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
    assert (config.data.path, config.epochs, config.seed) == ("glyphs:50", 1, 5)
    assert config.options["dim"] == 64 and config.options["temperature"] == 0.3


def test_the_data_stay_before_a_recipe(asked: list[TrainConfig]) -> None:
    Path("labelled").mkdir()
    main(["train", "--data", "labelled", "--config", "cifar10-simclr"])
    assert asked[0].data.path == "labelled" and asked[0].options == {"temperature": 0.5}


def data_of_all_kinds() -> None:
    """Folders of images, of one image, of sounds (by name) and of sentences."""
    for folder, names in (("photos", [f"{i}.png" for i in range(20)]), ("single", ["0.png"])):
        Path(folder).mkdir()
        for number, name in enumerate(names):
            Image.new("RGB", (12, 12), (10 * number, 90, 60)).save(Path(folder) / name)
    Path("recordings").mkdir()
    Path("recordings/a.wav").touch()
    Path("stsb").mkdir()
    for part in ("dev", "test", "train"):
        Path(f"stsb/{part}.csv").write_text("text\none\ntwo\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--config cifar10-simclr --data photos",
            "--data.labels --data.test",
        ),
        ("--config cifar10-simclr", "cifar10-simclr cifar10/ cifar10/train"),
        ("--data photos --method cpc", "cpc series photos images"),
        ("--data photos --method simcse", "simcse takes sentences, and photos holds images"),
        ("--data recordings --method clip", "clip caption recordings sound"),
        ("--data single", "single 1 2"),
        ("--data photos --method supcon", "supcon label photos"),
        ("--data photos --options.temperature -1", "--options.temperature -1 0"),
        ("--data photos --options.temperature abc", "--options.temperature 'abc' 0.5"),
        ("--epochs two", "--epochs 'two'"),
        ("--micro-batch-size x", "--micro-batch-size 'x'"),
        ("--precision 8", "--precision '8' '32' 'bf16' 'fp16'"),
        ("--series.mean [a]", "--series.mean ['a']"),
    ],
)
def test_a_mistake_is_told_with_the_flag_and_leaves_no_folder(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data_of_all_kinds()
    assert main(["train", *words.split()]) in (1, 2)
    heard = capsys.readouterr()
    (line,) = [line for line in heard.err.splitlines() if not line.startswith("packing at")]
    assert tells(line, said) and "\n" not in line
    assert not Path("runs").exists()


def test_a_run_that_fails_at_its_first_step_leaves_no_folder_but_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: SimCLR, encoded: object) -> object:
        raise ValueError("nothing fits")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SimCLR, "contrast", fail)
    words = ["train", "--data", "glyphs:64", "--backbone", "micro", "--epochs", "1", "--batch-size", "16"]
    Path("mine").mkdir()
    for out, stays in (([], False), (["--out", "mine"], True)):
        assert main([*words, *out]) == 1
        heard = capsys.readouterr()
        assert "nothing fits" in heard.err and ("report:" in heard.out) is stays
    assert not list(Path("runs").glob("*")) and Path("mine/report.html").exists()
    assert main([*words, "--out", "runs/new"]) == 1 and not Path("runs/new").exists()


@pytest.mark.parametrize("words", ["--optimizer lars", "--optimizer=lars", "--optimizer.name lars"])
def test_an_optimizer_is_named_as_data_are(words: str, asked: list[TrainConfig]) -> None:
    assert main(["train", *words.split(), "--optimizer.lr", "0.2"]) == 0
    assert (asked[0].optimizer.name, asked[0].optimizer.lr) == ("lars", 0.2)
    assert TrainConfig(optimizer="lars").optimizer.name == "lars"  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["train", "plan", "evaluate"])
def test_help_spells_flags_with_dashes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help-all"]) == 0
    flags = set(re.findall(r"--[\w.-]+", capsys.readouterr().out))
    assert "--batch-size" in flags and not [flag for flag in flags if "_" in flag]


def test_both_spellings_of_a_flag_are_taken(asked: list[TrainConfig]) -> None:
    for flag in ("--batch-size", "--batch_size"):
        assert main(["train", flag, "48", "--data.label-column=kind"]) == 0
    assert [each.batch_size for each in asked] == [48, 48] and asked[0].data.label_column == "kind"


@pytest.mark.parametrize("color", ["--views.color", "--views.colour"])
def test_what_views_change_is_said_in_words(color: str, asked: list[TrainConfig]) -> None:
    assert main(["train", color, "keep", "--views.orientation=rotate", "--views.scale", "keep"]) == 0
    views = asked[0].views
    assert (views.color, views.orientation, views.scale) == ("keep", "rotate", "keep")
    assert main(["train", "--views.orientation", "turned"]) == 2


@pytest.mark.parametrize(
    "command",
    [
        *("train photoss/", "train --data ./photoss", "evaluate runs/none", "evaluate --encoder none --data ."),
        *("embed runs/none . -o a.npy", "embed none . -o a.npy", "doctor photoss", "explore none", "export none"),
        *("search none a.npy --like b", "report none", "finish none", "duplicates none.npy", "select photoss -n 3"),
        "mine none a.csv -o b",
    ],
)
def test_a_mistyped_path_fails_before_torch_is_imported(tmp_path: Path, command: str) -> None:
    (tmp_path / "photos").mkdir()
    code = (
        "import sys\nfrom nearfar.cli import main\n"
        f"status = main({command.split()!r})\nprint(status, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"], done.stderr
    assert tells(done.stderr, "photos" if "photoss" in command else "none")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        *(("--tempurature 1", "temperature"), ("--learning 1", "learning-rate"), ("--thread 2", "workers")),
        *(("--gpu 1", "'device'"), ("--wandb true", "'logger'"), ("--hflip 0.5", "'views.orientation'")),
        *(("--queue-size 64", "'options'"), ("--ddp true", "'strategy'"), ("--random-state 1", "'seed'")),
    ],
)
def test_a_wrong_flag_lists_at_most_three_by_meaning(
    flags: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *flags.split()]) == 2
    line = capsys.readouterr().err
    assert tells(line, expected) and line.count("'") <= 8


def test_common_words_are_aliases() -> None:
    asked = positional_data(["photos/", "--lr", "0.1", "--temperature", "0.3", "--workers", "2"])
    full = "--data.path photos/ --optimizer.lr 0.1 --options.temperature 0.3 --data.workers 2"
    assert " ".join(full_flags(asked, SHORT)) == full


def test_names_known_before_torch_are_those_of_the_modalities() -> None:
    from nearfar.data.names import BUILT_IN
    from nearfar.modalities.series import data as series
    from nearfar.modalities.sound import data as sound

    assert {*series.BUILT_IN, *sound.BUILT_IN} < set(BUILT_IN)
