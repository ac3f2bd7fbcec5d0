"""Training on labels: what moves, by how much, on which rows, and when it stops."""

import copy

import pytest
import torch
from torch import Tensor, nn

from nearfar.evaluation.baselines import RawValues
from nearfar.evaluation.finetune import (
    Classifier,
    FinetuneHyperparameters,
    begin_as_probe,
    draw_labels,
    parameter_groups,
    predict,
    train_on_labels,
)
from nearfar.evaluation.linear import standard
from nearfar.evaluation.logistic import fit_logistic
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.finetune import FinetuneSettings
from nearfar.evaluation.protocols.geometry import GeometrySettings
from nearfar.evaluation.protocols.knn import KnnSettings
from nearfar.evaluation.protocols.sgd import SgdSettings
from nearfar.evaluation.task import Part, Task
from nearfar.modalities.image.backbones import backbone
from nearfar.nn.layers import layers
from tests.evaluation.bars import Bars, embedder, evaluate, prepare
from tests.support.facts import facts, tells


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.blocks = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)).relu()
        for block in self.blocks:
            x = block(x).relu()
        return x.mean(3).flatten(1)


def recipe(**changes: object) -> FinetuneHyperparameters:
    plain = FinetuneHyperparameters(
        frozen=False, optimizer="adamw", lr=0.01, epochs=4, batch_size=16, patience=5, validation=0.2, augment=False
    )
    return FinetuneHyperparameters(**{**vars(plain), **changes})  # type: ignore[arg-type]


def task(encoder: object, train: Bars, test: Bars) -> Task:
    parts = (Part(x, torch.arange(len(x)), x.labels, name) for x, name in ((train, "training"), (test, "test")))  # type: ignore[arg-type]
    return Task(embedder("trained", encoder, prepare), *parts, classes=4)


def test_layers_go_from_input_to_output() -> None:
    found = layers(Small())
    assert [[p.ndim for p in layer] for layer in found] == [[4, 1, 1, 1], [4, 1], [4, 1]]
    resnet = layers(backbone("resnet18", size=224))
    assert len(resnet) == 5 and sum(len(layer) for layer in resnet) == 60


def test_each_layer_has_its_part_of_the_rate_above() -> None:
    model = Classifier(Small(), 8, 4)
    groups = [g for g in parameter_groups(model, recipe(lr=1.0, layer_decay=0.5, weight_decay=0.1)) if g["params"]]
    rates = {id(p): g["lr"] for g in groups for p in g["params"]}
    encoder = model.encoder
    assert isinstance(encoder, Small)
    assert rates[id(model.head.weight)] == 1.0
    assert [rates[id(block.weight)] for block in encoder.blocks] == [0.25, 0.5]
    assert rates[id(encoder.stem.weight)] == rates[id(encoder.norm.weight)] == 0.125
    assert {g["weight_decay"] for g in groups if any(p.ndim > 1 for p in g["params"])} == {0.1}
    assert {g["weight_decay"] for g in groups if any(p.ndim <= 1 for p in g["params"])} == {0.0}
    assert len(rates) == len(list(model.parameters()))
    frozen = [g for g in parameter_groups(model, recipe(frozen=True)) if g["params"]]
    assert sum(len(g["params"]) for g in frozen) == 2


def test_a_part_of_the_labels_is_stratified() -> None:
    labels = torch.tensor([0] * 200 + [1] * 50 + [2] * 3)
    rows = draw_labels(labels, 0.1, seed=0)
    assert labels[rows].bincount().tolist() == [20, 5, 1]
    assert len(draw_labels(labels, 1.0, seed=0)) == 253
    assert not torch.equal(rows, draw_labels(labels, 0.1, seed=1))
    with pytest.raises(ValueError, match=facts("0")):
        draw_labels(labels, 0.0, seed=0)


def test_frozen_leaves_the_encoder_and_full_leaves_the_callers() -> None:
    torch.manual_seed(0)
    encoder = Small()
    before = {name: x.clone() for name, x in encoder.state_dict().items()}
    seen: list[Tensor] = []
    encoder.stem.register_forward_hook(lambda module, inputs, output: seen.append(module.weight.detach().clone()))
    work = task(encoder, Bars(80, 0), Bars(40, 1))
    train_on_labels(work, recipe(frozen=True), labels=1.0, seed=0)
    assert all(torch.equal(weight, before["stem.weight"]) for weight in seen)
    seen.clear()
    trained = train_on_labels(work, recipe(), labels=1.0, seed=0)
    assert any(not torch.equal(weight, before["stem.weight"]) for weight in seen)
    assert all(torch.equal(before[name], x) for name, x in encoder.state_dict().items())
    assert trained.scores.shape == (40, 4)
    torch.testing.assert_close(trained.scores.sum(1), torch.ones(40))


def test_it_learns_and_is_repeatable() -> None:
    torch.manual_seed(0)
    work = task(Small(), Bars(160, 0), Bars(80, 1))
    first, second = (train_on_labels(work, recipe(epochs=12), labels=1.0, seed=3) for _ in range(2))
    assert torch.equal(first.scores, second.scores)
    assert float((first.scores.argmax(1) == work.test.labels).float().mean()) > 0.6  # chance is 0.25
    assert first.labelled == 160 and first.validation is not None


def test_it_stops_when_validation_no_longer_rises() -> None:
    train = Bars(80, 0)
    train.labels = torch.randint(4, (80,), generator=torch.Generator().manual_seed(0))  # nothing to learn
    trained = train_on_labels(task(RawValues(), train, Bars(8, 1)), recipe(epochs=50, patience=2), labels=1.0, seed=0)
    assert trained.epochs < 50


def test_the_head_begins_as_a_probe_and_statistics_stay() -> None:
    torch.manual_seed(0)
    work = task(Small(), Bars(80, 0), Bars(40, 1))
    rows = draw_labels(work.train.labels, 5, seed=0)
    model = Classifier(copy.deepcopy(work.encoder), 64, 4)  # type: ignore[arg-type]
    begin_as_probe(model, work, rows)
    mean, deviation = standard(work.raw_train_features)
    x, others = ((h - mean) / deviation for h in (work.raw_train_features[rows], work.raw_test_features))
    weight, bias = fit_logistic(x, work.train.labels[rows], classes=4, c=0.1)
    expected = (others.double() @ weight.T + bias).softmax(1)
    everything = torch.arange(len(work.test))
    torch.testing.assert_close(predict(model, work, work.test, everything).double(), expected, atol=0.02, rtol=0)
    before = {name: x.clone() for name, x in model.named_buffers()}
    model.train()
    model(prepare(work.train.fetch(rows)))
    assert all(torch.equal(x, before[name]) for name, x in model.named_buffers())


def test_steps_from_a_probe_are_not_worse_than_the_probe() -> None:
    torch.manual_seed(0)
    work = task(Small(), Bars(160, 0), Bars(80, 1))
    still, moved = (
        train_on_labels(work, recipe(from_probe=True, lr=lr, epochs=3), labels=10, seed=0).scores for lr in (1e-9, 3e-3)
    )
    right = [float((scores.argmax(1) == work.test.labels).float().mean()) for scores in (still, moved)]
    assert right[1] >= right[0] > 0.25


def test_few_labels_are_all_trained_on() -> None:
    torch.manual_seed(0)
    work = task(Small(), Bars(80, 0), Bars(40, 1))
    few = train_on_labels(work, recipe(least_held=5, patience=1), labels=5, seed=0)  # a fifth are four
    many = train_on_labels(work, recipe(least_held=5), labels=10, seed=0)
    assert few.validation is None and few.epochs == 4 and few.labelled == 20
    assert many.validation is not None


def test_test_labels_are_never_looked_at() -> None:
    torch.manual_seed(0)
    encoder, other = Small(), Bars(40, 1)
    other.labels = torch.zeros(40, dtype=torch.long)
    first, second = (
        train_on_labels(task(encoder, Bars(80, 0), test), recipe(), labels=0.5, seed=0) for test in (Bars(40, 1), other)
    )
    assert torch.equal(first.scores, second.scores)


def test_every_protocol_in_one_evaluation() -> None:
    settings = ProtocolConfig(
        bootstrap=20,
        knn=KnnSettings(k=[5, 1]),
        geometry=GeometrySettings(views=3, samples=20),
        sgd=SgdSettings(epochs=3),
        finetune=FinetuneSettings(epochs=3, label_fractions=[0.2, 1.0], batch_size=32),
    )
    protocols = ["knn", "linear", "sgd", "finetune", "retrieval", "verification", "clustering", "geometry"]
    torch.manual_seed(0)
    results = evaluate(
        {"trained": Small(), "untrained": Small()},
        Bars(120, 0),
        Bars(60, 1),
        protocols=protocols,
        seeds=(0, 1),
        settings=settings,
    )
    assert list(dict.fromkeys(row.protocol for row in results.rows if row.encoder == "raw")) == protocols
    for row in results.rows:
        assert row.low is None or row.high is None or row.low <= row.value <= row.high, row
    for metric in ("accuracy, 20 % labels", "accuracy, 100 % labels"):
        assert {row.encoder for row in results.rows if row.metric == metric} == {"trained", "untrained", "raw"}
    assert results.value("raw", "knn", "accuracy, k = 1") is not None
    assert {protocol for _, protocol in results.curves} == set(protocols)


def test_geometry_needs_no_labels() -> None:
    without = Bars(30, 1)
    without.labels = None
    settings = ProtocolConfig(geometry=GeometrySettings(views=2, samples=10), bootstrap=20)
    results = evaluate(
        {"trained": Small()},
        without,
        without,
        protocols=["knn", "geometry"],
        settings=settings,
    )
    assert {row.protocol for row in results.rows} == {"geometry"}
    assert not [row for row in results.rows if row.metric == "neighbourhood purity"]
    assert tells(results.notes[0], "knn")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"knn": KnnSettings(k=[])}, "protocols.knn.k [] 1"),
        ({"finetune": FinetuneSettings(label_fractions=[0.0])}, "protocols.finetune.label_fractions [0.0]"),
        ({"finetune": FinetuneSettings(layer_decay=1.5)}, "protocols.finetune.layer_decay 1.5"),
        ({"sgd": SgdSettings(epochs=0)}, "protocols.sgd.epochs 0 1"),
        ({"validation_fraction": 1.0}, "protocols.validation_fraction 1.0"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=facts(message)):
        ProtocolConfig(**changes)
