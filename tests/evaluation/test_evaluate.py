"""Embedding and the whole evaluation, on small made images."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import nearfar
from nearfar.evaluation.baselines import RawValues
from nearfar.evaluation.embedding import embed
from nearfar.evaluation.metrics import Estimate
from nearfar.evaluation.protocols import PROTOCOLS, Protocol
from nearfar.evaluation.results import Provenance, Results, Row
from nearfar.evaluation.task import Outcome, Task
from tests.evaluation.bars import Bars, evaluate, prepare
from tests.support.facts import all_tell, facts, tells


class Rows(nn.Module):
    """The mean of each image row: what a perfect training would find."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((1, 3))


def test_the_schema_of_the_rows(tmp_path: Path) -> None:
    results = evaluate({"trained": Rows(), "untrained": RawValues()}, Bars(200, 0), Bars(80, 1))
    path = results.save(tmp_path / "run" / "evaluation.json")
    content = json.loads(path.read_text())
    assert list(content) == ["results", "comparisons", "provenance"]
    (how,) = (how for how in content["provenance"] if how["protocol"] == "knn")
    assert how["settings"] == {"k": [20, 1, 5], "temperature": 0.07, "search": "tiles", "bootstrap": 200}
    assert (how["seeds"], how["training"], list(how["encoders"])) == ([0], 200, ["trained", "untrained", "raw"])
    assert "knn, k = 20" in shown(results)
    assert list(dict.fromkeys((row["encoder"], row["protocol"]) for row in content["results"])) == [
        (encoder, protocol) for encoder in ("trained", "untrained", "raw") for protocol in ("knn", "linear")
    ]
    for row in content["results"]:
        style = ["style"] if row["metric"].startswith("calibration error") else []  # less is better
        assert list(row) == ["encoder", "protocol", "metric", "value", "low", "high", "split", "data", "n", *style]
        assert row["split"] == "test" and row["n"] == 80
        assert row["low"] is None or 0 <= row["low"] < row["high"] <= 1
    assert results.value("trained", "knn") > 0.9  # type: ignore[operator]
    assert results.value("nobody", "knn") is None
    assert Results.load(path) == Results(list(results.rows), [])
    assert list(tmp_path.rglob("*.part")) == []


def test_absent_labels_are_one_line() -> None:
    without = Bars(20, 1)
    without.labels = None
    for train, test, what in ((Bars(40, 0), without, "test"), (without, Bars(40, 0), "training")):
        results = evaluate({"trained": Rows()}, train, test)
        assert not results.rows
        assert all_tell(results.notes, [f"{what} labels knn linear"])
    assert tells(shown(results), "labels")


def test_images_without_a_label_are_left_out_and_counted() -> None:
    partly = torch.arange(20) % 4
    partly[:5] = -1
    results = evaluate({"trained": Rows()}, Bars(40, 0), Bars(20, 1, partly))
    assert {row.n for row in results.rows} == {15}
    assert any(tells(note, "5 20 test") for note in results.notes)


def test_classes_are_matched_by_name() -> None:
    turned = Bars(40, 1, torch.arange(40) % 4, classes=["a", "b", "c", "d"])
    shifted = Bars(40, 1, (torch.arange(40) % 4 + 1) % 4, classes=["d", "a", "b", "c"])
    expected, found = (evaluate({"trained": Rows()}, Bars(80, 0), test) for test in (turned, shifted))
    assert expected.rows == found.rows
    strange = Bars(40, 1, classes=["w", "x", "y", "z"])
    results = evaluate({"trained": Rows()}, Bars(80, 0), strange)
    assert not results.rows and tells(results.notes[0], "measured")


def test_broken_embeddings_cost_only_their_own_rows() -> None:
    def broken(x: Tensor) -> Tensor:
        return x.flatten(1) * torch.nan

    results = evaluate({"trained": broken, "untrained": Rows()}, Bars(40, 0), Bars(20, 1), protocols=["knn"])
    assert measured(results) == ["untrained", "raw"]
    assert tells(results.notes[0], "finite")


def test_a_seed_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def second_fails(task: Task, settings: object, seed: int) -> Outcome:
        if seed == 1:
            raise ValueError("no luck")
        return Outcome({"accuracy": Estimate(0.5 + seed / 10, 0.4, 0.9, 20)})

    monkeypatch.setitem(PROTOCOLS, "linear", Protocol("linear", second_fails, "", "", seeded=True))
    results = evaluate({"trained": Rows()}, Bars(40, 0), Bars(20, 1), protocols=["linear"], seeds=range(3))
    assert results.value("trained", "linear") == pytest.approx(0.6)
    assert "trained: seed 1: no luck" in results.notes


def test_notes_stay_with_the_rows_they_are_about() -> None:
    def found(data: str, protocol: str, note: str, measured: bool = True) -> Results:
        how = Provenance(data, "test", protocol, "1.0", [0], 10, {}, notes=[note])
        if not measured:
            return Results([], [note], provenance=[how])
        how.encoders["trained"] = "run"
        how.metrics.append("accuracy")
        return Results([Row("trained", protocol, "accuracy", 0.5, 0.4, 0.6, "test", data, 9)], [note], provenance=[how])

    both = found("cats", "linear", "few").after(found("cats", "knn", "rare"))
    assert both.notes == ["cats test: rare", "cats test: few"]
    assert found("cats", "knn", "fine").after(both).notes == ["cats test: few", "cats test: fine"]
    failed = found("dogs", "knn", "no labels", measured=False).after(both)
    assert failed.rows == both.rows and failed.notes == both.notes
    assert found("dogs", "knn", "no labels", measured=False).after(Results()).notes == ["no labels"]


def test_one_class_is_one_line() -> None:
    one = torch.zeros(20, dtype=torch.long)
    train, test = Bars(20, 0, one, classes=["a"]), Bars(20, 1, one, classes=["a"])
    results = evaluate({"trained": Rows()}, train, test)
    assert all_tell(results.notes, ["one class (a) knn linear"])


def test_a_class_without_test_images_is_told() -> None:
    most = Bars(20, 1, torch.arange(20) % 3)
    results = evaluate({"trained": Rows()}, Bars(40, 0), most, protocols=["knn"])
    assert any(tells(note, "1 4 class d") for note in results.notes)


def test_an_unknown_protocol_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match=facts("'knm' knn linear")):
        evaluate({}, Bars(4, 0), Bars(4, 1), protocols=["knm"])


def test_embedding_is_in_evaluation_mode_and_leaves_every_mode_as_it_was() -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(192), nn.Dropout(0.9))
    encoder[1].eval()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    data = Bars(20, 0)
    z = embed(encoder, data, prepare=prepare, batch_size=7)
    assert z.shape == (20, 192) and z.dtype == torch.float32 and not z.requires_grad
    torch.testing.assert_close(z, embed(encoder, data, prepare=prepare, batch_size=20, progress="all at once"))
    torch.testing.assert_close(z[[3, 5]], embed(encoder, data, prepare=prepare, rows=torch.tensor([3, 5])))
    assert [module.training for module in encoder] == [True, False, True] and encoder.training
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())


def test_modes_come_back_after_an_error() -> None:
    encoder = nn.Sequential(nn.Identity())
    with pytest.raises(ValueError, match=facts("(5, 3, 8, 8) 5 (B, F)")):
        embed(encoder, Bars(5, 0), prepare=prepare)
    assert encoder.training


def test_large_raw_images_are_averaged_down() -> None:
    assert RawValues()(torch.ones(2, 3, 224, 224)).shape == (2, 3072)
    assert RawValues()(torch.ones(2, 3, 8, 8)).shape == (2, 192)


def test_the_table_shows_hostile_names_as_they_are() -> None:
    row = Row("[red]trained[/nothing]", "knn", "accuracy", 0.831, 0.81, 0.85, "test", "glyphs", 2000)
    text = shown(Results([row], ["a [note]"]))
    for part in ("[red]trained[/nothing]", "83.1 %", "(81.0 to 85.0)", "glyphs test", "2,000", "a [note]"):
        assert part in text


def test_a_file_of_another_kind_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    for content in (
        "[1]",
        "{}",
        "not json",
        '{"results": [{"encoder": "trained"}]}',
        '{"results": [], "provenance": [1]}',
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=facts("evaluation.json")):
            Results.load(path)


def test_evaluation_draws_nothing() -> None:
    program = (
        "import sys, nearfar.evaluation\n"
        "print([m for m in ('plotly', 'matplotlib', 'lightning', 'torchvision', 'sklearn') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stdout + run.stderr


def measured(results: Results) -> list[str]:
    return list(dict.fromkeys(row.encoder for row in results.rows))


def shown(results: Results) -> str:
    console = Console(width=160, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(results.table())
    return captured.get()


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"protocol": ["knn"]}, TypeError, "'protocol' 'protocols'"),
        ({"sedes": 2}, TypeError, "'sedes' 'seeds'"),
        ({"protocols": []}, ValueError, "protocols [] 'knn'"),
        ({"protocols": [None]}, ValueError, "protocols [None] 'knn'"),
        ({"seeds": "two"}, ValueError, "seeds 'two'"),
        ({"image_size": "64"}, ValueError, "image_size '64'"),
        ({"encoder": None}, TypeError, "encoder None Encoder"),
    ],
)
def test_a_wrong_parameter_is_told_by_its_name(given: dict[str, object], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=facts(said)):
        nearfar.evaluate(**{"encoder": "torchvision:resnet18=no-file", "data": "glyphs:40", **given})  # type: ignore[arg-type]
