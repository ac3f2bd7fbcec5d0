"""What protocols declare, and one that comes from outside of the package."""

import contextlib
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import nearfar
from nearfar.cli import main
from nearfar.evaluation.protocols import PROTOCOLS, ProtocolConfig, find_protocol
from nearfar.evaluation.results import Results
from nearfar.settings import build
from tests.support.facts import facts, tells
from tests.support.untrained import untrained_run

OWN = """
from dataclasses import dataclass

import torch

from nearfar.evaluation.metrics import proportion
from nearfar.evaluation.protocols import Protocol
from nearfar.evaluation.task import Outcome
from nearfar.settings import setting


@dataclass(frozen=True)
class Settings:
    shift: float = setting(0.5, "added to all distances")


def centroid(task, settings, seed):
    means = torch.stack([task.train_features[task.train.labels == c].mean(0) for c in range(task.classes)])
    found = (torch.cdist(task.test_features, means) + settings.shift).nan_to_num(torch.inf).argmin(1)
    return Outcome({"accuracy": proportion(found == task.test.labels)})


PROTOCOL = Protocol("centroid", centroid, "nearest class centroid", "accuracy", Settings)
"""


def test_every_protocol_and_each_of_its_settings_is_described() -> None:
    for name, protocol in PROTOCOLS.items():
        assert protocol.name == name and protocol.about and re.compile(protocol.headline)
        settings = protocol.settings()
        assert is_dataclass(settings) and all(each.metadata.get("help") for each in fields(settings))
        assert set(protocol.shared) <= {"bootstrap", "validation_fraction"}
        assert protocol.used_settings(ProtocolConfig()).keys() >= {each.name for each in fields(settings)}


def test_help_lists_all_protocols(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--help"]) == 0
    said = re.sub(r"\n {20,}", " ", capsys.readouterr().out)  # lines that were folded
    for name, protocol in PROTOCOLS.items():
        assert re.search(rf"^  {name} +{re.escape(protocol.about)}$", said, re.MULTILINE), name
    with contextlib.suppress(SystemExit):
        main(["evaluate", "--help-all"])
    everything = capsys.readouterr().out
    assert "--protocols.knn.k" in everything and "bootstrap resamples behind" in everything


def test_settings_are_built_by_their_keys() -> None:
    config = build(ProtocolConfig, {"knn": {"k": [3]}, "bootstrap": 50}, "protocols")
    assert config.of(PROTOCOLS["knn"]).k == [3] and config.bootstrap == 50
    assert PROTOCOLS["knn"].used_settings(config)["bootstrap"] == 50
    with pytest.raises(ValueError, match=facts("protocols.knn.k [0] 1")):
        build(ProtocolConfig, {"knn": {"k": [0]}}, "protocols")


def test_a_protocol_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "centroids.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    run = untrained_run(tmp_path / "run", data="glyphs:200")
    results = nearfar.evaluate(run, protocols=["centroids:PROTOCOL", "knn"])
    assert {row.encoder for row in results.rows if row.protocol == "centroid"} == {"trained", "untrained", "raw"}
    assert main(["evaluate", str(run), "--protocol", "centroids:PROTOCOL"]) == 0
    (source,) = Results.load(run / "evaluation.json").provenance
    assert source.settings == {"shift": 0.5, "bootstrap": 200} and "centroid" in (run / "report.html").read_text()
    for name, told in (("centroids:Settings", "Settings Protocol"), ("centroids:NOTHING", "NOTHING"), ("no", "no knn")):
        with pytest.raises(ValueError) as error:
            find_protocol(name)
        assert tells(error.value, told)
