"""Embedding and the whole evaluation, on small made images."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from nearfar.evaluation.baselines import raw_pixels, untrained_copy
from nearfar.evaluation.embedding import embed
from nearfar.evaluation.metrics import Estimate
from nearfar.evaluation.neighbors import Neighbours, find_neighbours
from nearfar.evaluation.protocols import PROTOCOLS
from nearfar.evaluation.results import Made, Results, Row
from nearfar.evaluation.runner import evaluate
from nearfar.evaluation.task import Measure, Outcome, Task
from tests.evaluation.bars import Bars, prepare
from tests.support.facts import all_tell, facts, tells


class Rows(nn.Module):
    """The mean of each image row: what a perfect training would find."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((1, 3))


def test_the_schema_of_the_rows(tmp_path: Path) -> None:
    results = evaluate({"trained": Rows(), "untrained": raw_pixels}, Bars(200, 0), Bars(80, 1), prepare=prepare, seed=0)
    path = results.save(tmp_path / "run" / "evaluation.json")
    content = json.loads(path.read_text())
    assert list(content) == ["results", "made"]
    (how,) = (how for how in content["made"] if how["protocol"] == "knn")
    assert how["settings"] == {"neighbours": [20, 1, 5, 200], "temperature": 0.07, "search": "tiles", "resamples": 200}
    assert (how["seeds"], how["training"], list(how["encoders"])) == ([0], 200, ["trained", "untrained", "raw"])
    assert "knn, k = 20" in shown(results)
    assert list(dict.fromkeys((row["encoder"], row["protocol"]) for row in content["results"])) == [
        (encoder, protocol) for encoder in ("trained", "untrained", "raw") for protocol in ("knn", "linear")
    ]
    for row in content["results"]:
        assert list(row) == ["encoder", "protocol", "metric", "value", "low", "high", "split", "data", "n"]
        assert row["split"] == "test" and row["n"] == 80
        assert row["low"] is None or 0 <= row["low"] < row["high"] <= 1
    assert results.value("trained", "knn") > 0.9  # type: ignore[operator]
    assert results.value("nobody", "knn") is None
    assert Results.load(path) == Results(list(results.rows), [])
    assert list(tmp_path.rglob("*.part")) == []


def test_an_untrained_copy_is_made_where_none_is_given() -> None:
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8))
    with torch.no_grad():
        encoder[1].running_mean.fill_(3.0)
    state = torch.get_rng_state()
    first, second = (untrained_copy(encoder, seed=1) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert first is not None and second is not None
    for (name, fresh), again, old in zip(
        first.state_dict().items(), second.state_dict().values(), encoder.state_dict().values(), strict=True
    ):
        assert torch.equal(fresh, again)
        if name in ("0.weight", "4.weight", "1.running_mean"):
            assert not torch.equal(fresh, old)
    results = evaluate({"trained": encoder}, Bars(40, 0), Bars(20, 1), prepare=prepare, protocols=["knn"], seed=0)
    assert measured(results) == ["trained", "untrained", "raw"]


def test_what_cannot_be_drawn_anew_is_said() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.place = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1) + self.place

    results = evaluate({"trained": Odd()}, Bars(40, 0), Bars(20, 1), prepare=prepare, protocols=["knn"], seed=0)
    assert measured(results) == ["trained", "raw"]
    assert len(results.notes) == 1 and "untrained" in results.notes[0]


def test_absent_labels_are_one_line() -> None:
    without = Bars(20, 1)
    without.labels = None
    for train, test, what in ((Bars(40, 0), without, "test"), (without, Bars(40, 0), "training")):
        results = evaluate({"trained": Rows()}, train, test, prepare=prepare, seed=0)
        assert not results.rows
        assert all_tell(results.notes, [f"{what} labels knn linear"])
    assert tells(shown(results), "labels")


def test_images_without_a_label_are_left_out_and_counted() -> None:
    partly = torch.arange(20) % 4
    partly[:5] = -1
    results = evaluate({"trained": Rows()}, Bars(40, 0), Bars(20, 1, partly), prepare=prepare, seed=0)
    assert {row.n for row in results.rows} == {15}
    assert any(tells(note, "5 20 test") for note in results.notes)


def test_classes_are_matched_by_name() -> None:
    turned = Bars(40, 1, torch.arange(40) % 4, classes=["a", "b", "c", "d"])
    shifted = Bars(40, 1, (torch.arange(40) % 4 + 1) % 4, classes=["d", "a", "b", "c"])
    expected, found = (
        evaluate({"trained": Rows()}, Bars(80, 0), test, prepare=prepare, seed=0) for test in (turned, shifted)
    )
    assert expected.rows == found.rows
    strange = Bars(40, 1, classes=["w", "x", "y", "z"])
    results = evaluate({"trained": Rows()}, Bars(80, 0), strange, prepare=prepare, seed=0)
    assert not results.rows and tells(results.notes[0], "measured")


def test_broken_embeddings_cost_only_their_own_rows() -> None:
    def broken(x: Tensor) -> Tensor:
        return x.flatten(1) * torch.nan

    results = evaluate(
        {"trained": broken, "untrained": Rows()}, Bars(40, 0), Bars(20, 1), prepare=prepare, protocols=["knn"], seed=0
    )
    assert measured(results) == ["untrained", "raw"]
    assert tells(results.notes[0], "finite")


def test_a_seed_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def second_fails(task: Task, seed: int) -> Outcome:
        if seed == 1:
            raise ValueError("no luck")
        return Outcome({"accuracy": Estimate(0.5 + seed / 10, 0.4, 0.9, 20)})

    monkeypatch.setitem(PROTOCOLS, "linear", Measure(second_fails, "", "", seeded=True))
    results = evaluate(
        {"trained": Rows()}, Bars(40, 0), Bars(20, 1), prepare=prepare, protocols=["linear"], seed=0, seeds=3
    )
    assert results.value("trained", "linear") == pytest.approx(0.6)
    assert "trained: seed 1: no luck" in results.notes


def test_notes_stay_with_the_rows_they_are_about() -> None:
    def found(data: str, protocol: str, note: str, measured: bool = True) -> Results:
        how = Made(data, "test", protocol, "1.0", [0], 10, {}, notes=[note])
        if not measured:
            return Results([], [note], made=[how])
        how.encoders["trained"] = "run"
        how.metrics.append("accuracy")
        return Results([Row("trained", protocol, "accuracy", 0.5, 0.4, 0.6, "test", data, 9)], [note], made=[how])

    both = found("cats", "linear", "few").after(found("cats", "knn", "rare"))
    assert both.notes == ["cats test: rare", "cats test: few"]
    assert found("cats", "knn", "fine").after(both).notes == ["cats test: few", "cats test: fine"]
    failed = found("dogs", "knn", "no labels", measured=False).after(both)
    assert failed.rows == both.rows and failed.notes == both.notes
    assert found("dogs", "knn", "no labels", measured=False).after(Results()).notes == ["no labels"]


def test_one_class_is_one_line() -> None:
    one = torch.zeros(20, dtype=torch.long)
    train, test = Bars(20, 0, one, classes=["a"]), Bars(20, 1, one, classes=["a"])
    results = evaluate({"trained": Rows()}, train, test, prepare=prepare, seed=0)
    assert all_tell(results.notes, ["one class (a) knn linear"])


def test_a_class_without_test_images_is_told() -> None:
    most = Bars(20, 1, torch.arange(20) % 3)
    results = evaluate({"trained": Rows()}, Bars(40, 0), most, prepare=prepare, protocols=["knn"], seed=0)
    assert any(tells(note, "1 4 class d") for note in results.notes)


def test_an_unknown_protocol_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match=facts("protocols 'knm' 'knn' 'linear'")):
        evaluate({}, Bars(4, 0), Bars(4, 1), prepare=prepare, protocols=["knm"], seed=0)


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
    assert raw_pixels(torch.ones(2, 3, 224, 224)).shape == (2, 3072)
    assert raw_pixels(torch.ones(2, 3, 8, 8)).shape == (2, 192)


def test_the_table_shows_hostile_names_as_they_are() -> None:
    row = Row("[red]trained[/nothing]", "knn", "accuracy", 0.831, 0.81, 0.85, "test", "glyphs", 2000)
    text = shown(Results([row], ["a [note]"]))
    for part in ("[red]trained[/nothing]", "83.1 %", "(81.0 to 85.0)", "glyphs test", "2,000", "a [note]"):
        assert part in text


def test_a_file_of_another_kind_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    for content in ("[1]", "{}", "not json", '{"results": [{"encoder": "trained"}]}', '{"results": [], "made": [1]}'):
        path.write_text(content)
        with pytest.raises(ValueError, match=facts("evaluation.json")):
            Results.load(path)


def test_neighbours_are_of_the_same_kind_and_survive_the_file(tmp_path: Path) -> None:
    data = Bars(60, 0)
    z = embed(Rows(), data, prepare=prepare)
    found = find_neighbours(z, data, queries=6, k=5)
    assert found.queries.shape == (6, 8, 8, 3) and found.images.shape == (6, 5, 8, 8, 3)
    assert set(found.query_labels[:4]) == {"a", "b", "c", "d"}
    assert (found.labels == found.query_labels[:, None]).mean() > 0.8
    assert (found.similarities[:, :-1] >= found.similarities[:, 1:]).all() and found.similarities.max() < 1
    again = Neighbours.load(found.save(tmp_path / "neighbours.npz"))
    for name, value in vars(found).items():
        assert (getattr(again, name) == value).all()
    data.labels = None
    assert set(find_neighbours(z, data).labels.flatten()) == {""}


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
