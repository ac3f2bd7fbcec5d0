"""Files from strangers: nothing in them runs, and each is refused in a line."""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nearfar.cli import main
from nearfar.modalities.image.backbones import backbone
from nearfar.model.load import load
from nearfar.weights.allocation_limit import AllocationLimit
from tests.fuzz.targets import bounded
from tests.search.pictures import run_folder
from tests.support.facts import facts, tells
from tests.support.models import save_untrained_of


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


def text_run(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return save_untrained_of("text", folder)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_folder(tmp_path / "run")


def header(path: Path, content: bytes, length: int | None = None) -> None:
    """A safetensors file of a header alone, of the length stated or its own."""
    path.write_bytes(struct.pack("<Q", len(content) if length is None else length) + content)


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        content = load_file(run / "model.safetensors")
        change(content)
        save_file(content, run / "model.safetensors")

    return spoil


def cut(run: Path) -> None:
    file = run / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def bomb(run: Path) -> None:
    (run / "model.safetensors").write_bytes(pickle.dumps(Bomb(run / "exploded")))


def torch_bomb(run: Path) -> None:
    torch.save({"stem.weight": Bomb(run / "exploded")}, run / "model.safetensors")


def lying_shape(run: Path) -> None:
    entry = {"stem.weight": {"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 16]}}
    header(run / "model.safetensors", json.dumps(entry).encode() + b" " * 16)


def card(**changes: object) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        content = json.loads((run / "card.json").read_text())
        (run / "card.json").write_text(json.dumps({**content, **changes}))

    return spoil


def changed(edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        content = json.loads((run / "card.json").read_text())
        edit(content)
        (run / "card.json").write_text(json.dumps(content))

    return spoil


def options(**changes: object) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        config = json.loads((run / "card.json").read_text())["config"]
        card(config={**config, "method": "simclr", "options": changes})(run)

    return spoil


def text(content: bytes) -> Callable[[Path], None]:
    return lambda run: (run / "card.json").write_bytes(content) and None


WEIGHTS = "safetensors"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (bomb, WEIGHTS),
        (torch_bomb, WEIGHTS),
        (cut, WEIGHTS),
        (lambda run: (run / "model.safetensors").write_bytes(b""), WEIGHTS),
        (lambda run: header(run / "model.safetensors", b"{}", length=1 << 60), WEIGHTS),
        (lambda run: header(run / "model.safetensors", b"[" * 50_000), WEIGHTS),
        (lying_shape, WEIGHTS),
        (weights(lambda x: x.update({"stem.weight": torch.zeros(2, 2)})), "shape 'stem.weight'"),
        (weights(lambda x: x.pop("stem.weight")), "'stem.weight'"),
        (weights(lambda x: x.update({"../../../evil": torch.zeros(2)})), "'../../../evil'"),
        (weights(lambda x: x["stem.weight"].fill_(float("nan"))), "finite"),
        (card(backbone="../../evil"), "backbone '../../evil'"),
        (card(backbone="hf-hub:someone/evil"), "backbone"),
        (card(backbone="local-dir:/tmp"), "backbone"),
        (card(backbone=["micro"]), "name"),
        (card(image_size=10**9), "1 4096"),
        (card(image_size="32"), "whole number"),
        (card(mean=[0, "x", 0]), "mean [0, 'x', 0]"),
        (card(standardize="no"), "standardize 'no'"),
        (card(std=[0, 1, 1]), "three numbers 0"),
        (card(std=[float("nan"), 1, 1]), "three numbers"),
        (card(format="other"), "card"),
        (card(version=1, nearfar="0.0.9"), "card version 1 0.0.9 2"),
        (card(version="new"), "card version 'new'"),
        (options(kept_layers=10**9, layers=10**10), "layers 10000000000"),
        (options(kept_layers=1, hidden=10**30), "hidden"),
        (options(kept_layers=1, hidden=1 << 20), "fit"),
        (options(kept_layers="all"), "kept_layers all"),
        (options(kept_layers=1), "lacks"),
        (text(b"[" * 100_000), "card"),
        (text(b"\xff\xfe"), "card"),
        (text(b""), "card"),
        (text(b"[]"), "card"),
        (text(b" " * (17 << 20)), "card"),
    ],
)
def test_a_hostile_folder_is_refused_in_a_line(run: Path, spoil: Callable[[Path], object], told: str) -> None:
    spoil(run)
    with pytest.raises(ValueError) as error:
        load(run)
    assert tells(str(error.value), told) and "\n" not in str(error.value), error.value
    assert len(str(error.value)) < 500
    assert not (run / "exploded").exists()


def test_a_card_that_names_a_huge_network_costs_no_memory(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(AllocationLimit):
        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            made.append(self.made - self.limit)

    monkeypatch.setattr("nearfar.weights.allocation_limit.AllocationLimit", Counted)
    card(backbone="vit_huge_patch14_224", image_size=224)(run)
    with bounded(), pytest.raises(ValueError, match=facts("numbers weights")):
        load(run)
    assert made and made[0] > 0


@pytest.mark.parametrize("text", [{"vocab_size": 10**7}, {"max_length": 10**5}])
def test_a_card_that_names_a_huge_vocabulary_costs_no_memory(text: dict[str, Any], tmp_path: Path) -> None:
    load(text_run(tmp_path))

    def spoil(content: dict[str, Any]) -> None:
        content["config"]["text"] |= text

    changed(spoil)(tmp_path / "run")
    with bounded(), pytest.raises(ValueError) as error:
        load(tmp_path / "run")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["transformers:someone/evil", "transformers:evil"])
def test_a_card_contacts_no_hub(name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("a look-up"))
    card(backbone=name)(run)
    for untrained in (False, True):
        with pytest.raises((ValueError, FileNotFoundError)) as error:
            load(run, untrained=untrained)
        assert "\n" not in str(error.value)
    text = text_run(tmp_path / "text")
    changed(lambda content: content["config"].update(backbone=name))(text)
    with pytest.raises((ValueError, FileNotFoundError)):
        load(text)


def test_the_bomb_of_these_tests_goes_off_where_it_is_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert (tmp_path / "exploded").exists()


def test_weights_given_as_a_torch_file_are_not_unpickled(tmp_path: Path) -> None:
    for name, write in (
        ("raw.pt", lambda p, b: p.write_bytes(pickle.dumps(b))),
        ("zip.pt", lambda p, b: torch.save(b, p)),
    ):
        write(tmp_path / name, {"stem.weight": Bomb(tmp_path / "exploded")})
        with pytest.raises(ValueError, match=facts("weights")) as error:
            backbone("micro", weights=tmp_path / name)
        assert "\n" not in str(error.value) and not (tmp_path / "exploded").exists()


def test_an_evaluation_of_another_shape_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in ("[]", '{"results": [1]}', "{", '{"results": {"a": 1}}'):
        (run / "evaluation.json").write_text(content)
        assert main(["export", str(run), "-o", str(run.parent / "out")]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and tells(lines[0], "evaluation"), lines


def test_a_run_that_names_a_data_set_downloads_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its owner chose the name: `--data NAME` fetches it."""
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", lambda *_: pytest.fail("a download"))

    def name_cifar(content: dict[str, Any]) -> None:
        content["config"]["data"]["path"] = "cifar10"

    changed(name_cifar)(run)
    for words in (["evaluate", str(run)], ["explore", str(run), "--port", "0"]):
        assert main(words) == 1
        assert tells(capsys.readouterr().err, "CIFAR10 downloaded"), words


@pytest.mark.parametrize("path", ["/", "~", "/**/*.tar"])
def test_a_run_that_names_a_whole_disk_is_refused(run: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it was searched for pictures, for minutes."""
    changed(lambda content: content["config"]["data"].update(path=path))(run)
    for words in (["evaluate", str(run)], ["explore", str(run), "--port", "0"]):
        assert main(words) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and tells(lines[0], f"{path} --data"), lines
