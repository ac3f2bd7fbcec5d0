"""Settings: declared with help and limits, sections with a main key, and the same words in files, flags and Python."""

import importlib
import itertools
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig, completed
from nearfar.data.config import DataConfig, EvaluationData
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.results import Results
from nearfar.modalities.config import VIEW_FACTORS, ViewsConfig
from nearfar.settings import build, help_texts, main_key, sections
from tests.support.facts import facts, tells


def settings_classes(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for each in sections(kind).values():
        yield from settings_classes(each)


EVERY = [each for kind in (TrainConfig, EvaluationData, ProtocolConfig) for each in settings_classes(kind)]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_setting_has_a_help_text_in_a_line(kind: type[Any]) -> None:
    assert all(text.strip() and "\n" not in text for text in help_texts(kind).values())
    assert (key := main_key(kind)) is None or key in {field.name for field in fields(kind)}


@pytest.mark.parametrize(
    "data",
    ["photos/", Path("photos/"), {"path": "photos/"}, DataConfig("photos/"), DataConfig(path="photos/")],
    ids=repr,
)
def test_a_section_may_be_given_as_its_main_key_alone(data: Any) -> None:
    for config in (build(TrainConfig, completed({"data": data, "views": "simclr"}), "t"), TrainConfig(data=data)):
        assert isinstance(config.data, DataConfig) and Path(config.data.path) == Path("photos")
    assert TrainConfig(views="simclr").views == ViewsConfig("simclr")  # type: ignore[arg-type]


def test_config_yaml_has_full_sections_and_is_read_back(tmp_path: Path) -> None:
    config = TrainConfig(data=DataConfig("photos/", test="other/"), views=ViewsConfig("simclr", count=2))
    written = yaml.safe_load(config.to_yaml())
    assert written["data"]["path"] == "photos/" and written["data"]["test"] == "other/"
    assert written["views"] == {
        "preset": "simclr",
        "count": 2,
        "local": None,
        "size": None,
        **dict.fromkeys(VIEW_FACTORS),
    }
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    assert TrainConfig.from_yaml(tmp_path / "config.yaml") == config


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """Beside empty folders of data, the configurations that would be trained; none is."""
    found: list[TrainConfig] = []

    def execute(config: TrainConfig, folder: Path, **_: object) -> tuple[SimpleNamespace, Results]:
        found.append(config)
        return SimpleNamespace(trained_encoder=lambda: None), Results()

    monkeypatch.setattr(importlib.import_module("nearfar.training.train"), "_execute", execute)
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "other", "from-file", "file-test"):  # a path that is not there is refused first
        Path(name).mkdir()
    Path("plain.yaml").write_text("data: from-file/\nviews: moco_v1\n")
    Path("full.yaml").write_text("data: {path: from-file/, labels: true, test: file-test/}\nviews: {preset: moco_v1}\n")
    return found


FLAGS = [["--data", "photos/"], ["--data.test", "other/"], ["--views=simclr"]]
JOINED = [["--data=photos/"], ["--data.test=other/"], ["--views", "simclr"]]


@pytest.mark.parametrize("flags", [*itertools.permutations(FLAGS), *itertools.permutations(JOINED, 3)])
@pytest.mark.parametrize("file", [[], ["--config", "plain.yaml"], ["--config=full.yaml"]], ids=str)
def test_flags_of_a_section_in_any_order_and_over_files(
    flags: tuple[list[str], ...], file: list[str], asked: list[TrainConfig]
) -> None:
    for words in ([*file, *itertools.chain(*flags)], [*itertools.chain(*flags), *file]):
        assert main(["train", *words]) == 0
        data, views = asked[-1].data, asked[-1].views
        assert (data.path, data.test, views.preset) == ("photos/", "other/", "simclr")
        assert data.labels is (True if file == ["--config=full.yaml"] else None)


def test_one_key_of_a_section_leaves_the_others_of_the_file(asked: list[TrainConfig]) -> None:
    main(["train", "--config", "full.yaml", "--data", "photos/", "--data.test", "null"])
    assert asked[0].data == DataConfig("photos/", labels=True) and asked[0].views.preset == "moco_v1"
    main(["train", "--config", "full.yaml", "--config", "plain.yaml", "--data.label-column", "kind"])
    assert asked[1].data == DataConfig("from-file/", labels=True, test="file-test/", label_column="kind")


def test_python_takes_the_same_forms(asked: list[TrainConfig]) -> None:
    nearfar.train("photos/", views="simclr")
    nearfar.train({"path": "photos/", "test": "other/"}, views={"preset": "simclr"})
    nearfar.train(DataConfig("photos/", test="other/"))
    nearfar.train("glyphs:50", views={"count": 2})
    assert [config.data.test for config in asked] == [None, "other/", "other/", None]
    assert [config.views.preset for config in asked] == ["simclr", "simclr", None, "shapes"]
    assert asked[3].views == ViewsConfig("shapes", count=2)  # glyphs bring their own preset


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": {"pth": "photos/"}}, "data 'pth' 'path'"),
        ({"data": 3}, "data path 3"),
        ({"data": ["a", "b"]}, "data path ['a', 'b']"),
        ({"data": {"validation": 1.0}}, "data.validation 1.0 below 1"),
        ({"data": {"stored_size": 0}}, "data.stored_size 0 1"),
        ({"data": {"shuffle_window": -1}}, "data.shuffle_window -1 0"),
        ({"data": {"held_out": "theo"}}, "data.held_out 'theo'"),
        ({"views": {"count": 0}}, "views.count 0 1"),
        ({"views": {"local": -1}}, "views.local -1 0"),
        ({"sources": {"test": "other/"}}, "'sources' 'data'"),
        ({"optimizer": {"clip_norm": 0.0}}, "optimizer.clip_norm 0.0 0"),
        ({"sound": {"crop_seconds": 20.0}}, "sound.crop_seconds 20.0 sound.max_seconds 10.0"),
        ({"text": {"max_length": 2}}, "text.max_length 2 3"),
        ({"series": {"mean": [0.0], "std": [0.0]}}, "series.std [0.0] above 0"),
    ],
)
def test_mistakes_in_sections_are_told(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=facts(said)):
        build(TrainConfig, given, "train")
    with pytest.raises(ValueError, match=facts(said)):
        build(TrainConfig, completed(given), "train")
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(given))
    with pytest.raises(ValueError, match=facts(said)):
        TrainConfig.from_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--sources.test other/", "'sources.test' 'data.test'"),
        ("--data.tset other/", "'data.tset' 'data.test'"),
        ("--config old.yaml", "old.yaml 'sources' 'data'"),
        ("--config", "--config"),
        ("--views.count two", "--views.count 'two' number"),
        ("--method clip --views.count 3 --epochs 1", "--views.count 3 clip"),
        ("--method cpc --data waves --views.count 2", "--views.count 2 cpc 1"),
        ("--method clip --views.local 4", "--views.local 4 clip none"),
    ],
)
def test_mistakes_in_flags_are_told_in_a_line(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_text("sources: {test: other/}\n")
    assert main(["train", *words.split()]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert tells(line, said) and not Path("runs").exists()
