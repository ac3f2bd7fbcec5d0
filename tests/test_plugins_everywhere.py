"""A method, a modality and a protocol from outside the package go through every command."""

import json
import sys
from pathlib import Path

import pytest

import nearfar
from nearfar.cli import main
from tests.support.facts import tells
from tests.support.models import save_untrained_of

PLUGIN = '''
import torch
from torch import nn

from nearfar.data.dataset import Dataset
from nearfar.evaluation.metrics import Estimate
from nearfar.evaluation.protocols import Protocol
from nearfar.evaluation.task import Outcome
from nearfar.losses import nt_xent
from nearfar.methods import Method, Step
from nearfar.metric_text import MetricStyle
from nearfar.modalities.base import Modality
from nearfar.nn.seeding import seeded_generator


class PullTogether(Method):
    """Two views of a sample find each other."""

    def __init__(self, encoder, *, features, samples=0, temperature=0.2):
        super().__init__()
        self.encoder, self.temperature = encoder, temperature

    def encode(self, batch):
        z1, z2 = (self.encoder(x) for x in batch.views[:2])
        return {"z1": z1, "z2": z2, "ids": batch.ids}

    def contrast(self, encoded):
        z1, z2 = encoded["z1"], encoded["z2"]
        loss = nt_xent(z1, z2, temperature=self.temperature, ids=encoded["ids"])
        return Step(loss, z1.detach(), z2.detach(), candidates=2 * len(z1) - 1)


class PointSet(Dataset):
    """Points around a center for each class."""

    def __init__(self, points, labels, names):
        self.points, self.labels, self.names = points, labels, names
        self.classes, self.size = ["a", "b"], points.shape[1]

    def __len__(self):
        return len(self.points)

    def fetch(self, indices):
        return self.points[indices]

    def subset(self, indices):
        return PointSet(self.points[indices], self.labels[indices], [self.names[i] for i in indices.tolist()])


class Points(Modality):
    """Points of eight numbers, from "points:COUNT"."""

    name = "toy_plugin:Points"
    noun = "points"
    queries = ("point",)

    def open(self, spec, split=None):
        count, _ = int(spec.partition(":")[2]), split
        generator = torch.Generator().manual_seed(1 if split == "test" else 0)
        labels = torch.arange(count) % 2
        points = 3.0 * labels[:, None] + torch.randn(count, 8, generator=generator)
        return PointSet(points, labels, [f"{split or 'all'}-{i}" for i in range(count)])

    def own_splits(self, spec):
        return "train", "test"

    def encoder(self, *, untrained=False):
        network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        network.num_features = 4
        return network

    def prepare(self, samples):
        return samples

    def views(self, samples, source, index, *, seed, step, shard=None):
        noise = (torch.randn(samples.shape, generator=seeded_generator(seed, step, i)) for i in range(2))
        return [samples + 0.1 * each.to(samples.device) for each in noise]

    def pair_of_views(self, samples, source, index, *, seed, step):
        return self.views(samples, source, index, seed=seed, step=step)

    def read(self, item, kind=None):
        return torch.as_tensor(item, dtype=torch.float32)


def mean_norm(task, settings, seed):
    norms = task.test_features.norm(dim=1)
    return Outcome({"mean norm": Estimate(float(norms.mean()), None, None, len(norms))})


NORM = Protocol(
    "toy_plugin:NORM",
    mean_norm,
    "mean length of the embeddings",
    "mean norm",
    needs="samples",
    metrics={"mean norm": MetricStyle(3, less_is_better=True)},
)
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "toy_plugin.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "toy_plugin", raising=False)
    return tmp_path


def test_toys_from_outside_go_through_every_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "--data", "points:80", "--modality", "toy_plugin:Points", "--method", "toy_plugin:PullTogether"]
    assert main([*train, "--epochs", "2", "--batch-size", "16", "--device", "cpu", "--out", "run"]) == 0
    assert (here / "run" / "report.html").is_file()
    assert main(["evaluate", "run", "--protocol", "knn", "toy_plugin:NORM", "--device", "cpu"]) == 0
    rows = json.loads((here / "run" / "evaluation.json").read_text())["results"]
    measured = {(row["encoder"], row["protocol"], row["metric"]) for row in rows}
    assert ("trained", "knn", "accuracy") in measured and ("trained", "toy_plugin:NORM", "mean norm") in measured
    assert {row["split"] for row in rows} == {"test"}
    styles = {row["metric"]: row.get("style") for row in rows}
    assert styles["accuracy"] is None and styles["mean norm"] == {"decimals": 3, "less_is_better": True, "least": 0.0}
    assert main(["embed", "run", "points:80", "-o", "all.parquet", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["search", "run", "all.parquet", "--like", "all-3", "-k", "5"]) == 0
    assert "all-3" in capsys.readouterr().out
    assert main(["report", "run"]) == 0
    assert main(["check", "toy_plugin:PullTogether", "--processes", "1"]) == 0
    assert main(["check", "run", "--processes", "1"]) == 0


def test_views_that_a_modality_from_outside_does_not_make_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ["train", "--data", "points:80", "--modality", "toy_plugin:Points", "--method", "toy_plugin:PullTogether"]
    rest = ["--epochs", "1", "--batch-size", "16", "--device", "cpu", "--out"]
    assert main([*train, *rest, "three", "--views.count", "3"]) != 0
    assert tells(capsys.readouterr().err, "--views.count 3 toy_plugin:Points 2")
    assert not (here / "three").exists()
    assert main([*train, *rest, "two", "--views.count", "2"]) == 0


def test_settings_of_a_protocol_from_outside_have_flags(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "scaled.py").write_text(
        "from dataclasses import dataclass\n"
        "from nearfar.evaluation.metrics import Estimate\n"
        "from nearfar.evaluation.protocols import Protocol\n"
        "from nearfar.evaluation.task import Outcome\n"
        "from nearfar.settings import setting\n\n\n"
        "@dataclass(frozen=True)\n"
        "class Settings:\n"
        "    factor: float = setting(1.0, 'what it is multiplied by', above=0)\n\n\n"
        "def run(task, settings, seed):\n"
        "    return Outcome({'factor': Estimate(settings.factor, None, None, len(task.test_features))})\n\n\n"
        "PROTOCOL = Protocol('scaled', run, 'a factor', 'factor', Settings, needs='samples')\n"
        "SAME = Protocol('knn', run, 'a factor', 'factor', Settings, needs='samples')\n"
    )
    run = str(save_untrained_of("image", here))
    words = ["evaluate", run, "--data", "glyphs:40", "--device", "cpu", "--out", "out", "--protocol", "scaled:PROTOCOL"]
    assert main([*words, "--protocols.scaled.factor", "3"]) == 0
    rows = json.loads((here / "out" / "evaluation.json").read_text())["results"]
    assert {row["value"] for row in rows if row["metric"] == "factor"} == {3.0}
    results = nearfar.evaluate(run, "glyphs:40", protocols=["scaled:PROTOCOL"], settings={"scaled": {"factor": 4}})
    assert results.value("trained", "scaled", "factor") == 4.0
    capsys.readouterr()
    for flag, value in (("factor", "-1"), ("faktor", "3")):
        assert main([*words, f"--protocols.scaled.{flag}", value]) != 0
        assert tells(capsys.readouterr().err, f"protocols.scaled.{flag} {'-1' if value == '-1' else 'factor'}")
    assert main(["evaluate", run, "--protocol", "scaled:SAME"]) == 1
    assert tells(capsys.readouterr().err, "scaled:SAME 'knn'")
