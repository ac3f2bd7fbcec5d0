"""The page: whole, self-contained, safe, and readable whatever is missing."""

import json
import math
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nearfar.evaluate import Neighbours, Results, Row
from nearfar.report import write_report
from nearfar.report.curves import curves
from nearfar.report.figures import draw_curves
from nearfar.report.run import Verdict, read_run
from nearfar.report.words import comparisons, health

VOID = {"meta", "img", "link", "br", "hr", "input"}
HOSTILE = "<script>alert('&\"x\"')</script>"


class Page(HTMLParser):
    """Checks that tags are balanced, and keeps what was seen."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text += data

    def attributes(self, name: str) -> list[str]:
        return [str(attrs[name]) for _, attrs in self.tags if name in attrs]


def row(encoder: str, value: float, protocol: str = "knn") -> Row:
    return Row(encoder, protocol, "accuracy", value, value - 0.02, value + 0.02, "test", "glyphs", 2000)


def fill(folder: Path, name: str = "cat") -> None:
    (folder / "config.yaml").write_text(f"method:\n  name: simclr\ndata: {json.dumps(name)}\nepochs: 3\n")
    lines = [
        {"step": s, "epoch": s / 10, "loss": 5 / (1 + s), "lr": 0.1, "ceiling": 6.2, "bound": 6.2 - 5 / (1 + s)}
        for s in range(30)
    ]
    lines[7] |= {"knn": 0.5, "effective_rank": 30.5}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 30, "lo')
    verdicts = [{"step": 9, "level": "warning", "text": name}, {"step": 20, "level": "good", "text": "it learns"}]
    (folder / "verdicts.json").write_text(json.dumps(verdicts))
    Results([row("trained", 0.83), row("untrained", 0.4), row("raw", 0.12), row(name, 0.5)], [name]).save(
        folder / "evaluation.json"
    )
    Image.new("RGB", (40, 20), "teal").save(folder / "views.png")
    Neighbours(
        queries=np.zeros((2, 8, 8, 3), np.uint8),
        images=np.full((2, 3, 8, 8, 3), 90, np.uint8),
        similarities=np.array([[0.9, 0.8, 0.7]] * 2, np.float32),
        query_labels=np.array([name, "dog"]),
        labels=np.array([[name, name, "dog"]] * 2),
    ).save(folder / "neighbours.npz")


def test_a_whole_run_is_told(tmp_path: Path) -> None:
    fill(tmp_path)
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html" and path.stat().st_size < 6_000_000
    page = Page(path.read_text())
    for part in (
        "simclr was trained on cat for 29 steps (epoch 2.9); the loss went from 5 to 0.167.",
        "Healthy: it learns",
        "k-NN reaches 83.0 % (81.0 to 85.0) accuracy on 2,000 test samples of glyphs",
        "2.1 times the untrained encoder at 40.0 % (38.0 to 42.0); 6.9 times raw input at 12.0 % (10.0 to 14.0).",
        "50.0 % of the neighbours shown have the query's label",
        "log N: nothing learned 6.2",
        "effective rank 30.5",
        "epochs: 3",
        "torch",
    ):
        assert part in page.text, part
    assert sum(tag == "img" for tag, _ in page.tags) == 1 + 2 * 4
    assert all(attrs.get("alt") for tag, attrs in page.tags if tag == "img")
    titles = [chart["title"] for chart in json.loads(page.scripts[1])]
    assert titles == ["Loss", "k-NN during training", "Effective rank", "Mutual information, at least", "Learning rate"]
    assert sum("plotly.js v" in script[:300] for script in page.scripts) == 1


def test_the_figures_and_each_class_are_shown(tmp_path: Path) -> None:
    name = "<b>cats</b>"
    curves = {
        "confusion": np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]),
        "classes": np.array([name, "dogs", "none"]),
        "support": np.array([4, 4, 0]),
        "precision": np.array([1.0, 0.8, 0.0]),
        "recall": np.array([0.75, 1.0, 0.0]),
        "f1": np.array([0.857, 0.889, 0.0]),
    }
    both = {("trained", "knn"): curves, ("raw", "knn"): curves}
    found = Results([row("trained", 0.83), row("raw", 0.12)], curves=both)
    found.save(tmp_path / "evaluation.json")
    found.save_curves(tmp_path / "evaluation")
    assert len(draw_curves(found, tmp_path / "evaluation")) == 2
    page = Page(write_report(tmp_path).read_text())
    drawn = [attrs for tag, attrs in page.tags if tag == "img" and attrs.get("class") == "drawn"]
    assert [attrs["alt"] for attrs in drawn] == [f"Curves of {who}, knn, glyphs test" for who in ("trained", "raw")]
    assert all(str(attrs["src"]).startswith("data:image/png;base64,") for attrs in drawn)
    assert page.text.count("Each class: trained, knn, glyphs test") == 1 and "Each class: raw" not in page.text
    assert name in page.text and "b" not in {tag for tag, _ in page.tags}
    assert "75.0 %" in page.text and "85.7 %" in page.text
    (tmp_path / "evaluation" / "glyphs_test" / "knn-trained.npz").write_bytes(b"no arrays")
    assert "knn-trained.npz could not be read" in Page(write_report(tmp_path).read_text()).text


def test_nothing_is_loaded_from_anywhere(tmp_path: Path) -> None:
    fill(tmp_path)
    page = Page(write_report(tmp_path).read_text())
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "object", "embed", "base")]
    for name in ("src", "href", "srcset", "action", "poster", "data"):
        for target in page.attributes(name):
            assert target.startswith(("#", "data:image/png;base64,")), target[:80]
    anchors = set(page.attributes("id"))
    assert all(target[1:] in anchors for target in page.attributes("href"))
    assert "url(" not in (tmp_path / "report.html").read_text().split("</style>")[0]
    policy = next(attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs)
    assert policy is not None and policy.startswith("default-src 'none'") and "http" not in policy


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    folder = tmp_path / "<b>run</b>".replace("/", "∕")
    folder.mkdir()
    fill(folder, HOSTILE)
    metrics = folder / "metrics.jsonl"
    metrics.write_text(json.dumps({"step": 1, "loss": 1.0, "epoch": HOSTILE, HOSTILE: 3}) + "\n")
    page = Page(write_report(folder).read_text())
    assert len(page.scripts) == 3
    assert not any("alert(" in script for script in (page.scripts[1], page.scripts[2]))
    assert page.text.count(HOSTILE) >= 5
    assert "b" not in {tag for tag, _ in page.tags}


def test_a_folder_with_its_configuration_alone(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("method: byol\n")
    path = write_report(tmp_path)
    page = Page(path.read_text())
    for part in (
        "byol was trained. No training metrics",
        "has not been evaluated",
        "No curves",
        "No health verdict",
        "No picture of the views",
        "No nearest neighbours",
    ):
        assert part in page.text
    assert not page.scripts and path.stat().st_size < 50_000


def test_an_empty_folder_and_no_folder(tmp_path: Path) -> None:
    assert "No config.yaml" in Page(write_report(tmp_path).read_text()).text
    with pytest.raises(FileNotFoundError, match="expected the folder of a run"):
        write_report(tmp_path / "nowhere")


NAMES = ("config.yaml", "verdicts.json", "evaluation.json", "views.png", "neighbours.npz", "environment.json")


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_file_costs_only_its_own_part(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    (tmp_path / name).write_bytes(b"\xff[1, {")
    text = Page(write_report(tmp_path).read_text()).text
    assert f"{name} could not be read" in text and "Loss" in text


def test_half_a_line_and_numbers_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "loss": NaN}\n{"step": 1, "loss": 3}\n[]\n{"loss": 1}\n{"st')
    run = read_run(tmp_path)
    assert [line["step"] for line in run.metrics] == [1, 2]
    assert [chart.lines[0].y for chart in curves(run.metrics)] == [[3.0]]
    Page(write_report(tmp_path).read_text())


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    (chart,) = curves([{"step": s, "loss": math.exp(-s)} for s in range(12_345)])
    assert len(chart.lines[0].x) <= 1001
    assert chart.lines[0].x[0] == 0 and chart.lines[0].x[-1] == 12_344


def test_health_in_words() -> None:
    good, warning, error = (Verdict(i, level, level.upper()) for i, level in enumerate(("good", "warning", "error")))
    assert health([]) == ("note", "No health verdict was recorded.")
    assert health([warning, good])[0] == "good"
    assert health([good, warning]) == ("warning", "Look closer: WARNING")
    assert health([error, good]) == ("error", "Not healthy: ERROR")


def test_comparison_claims_no_more_than_the_intervals_show() -> None:
    close = comparisons([row("trained", 0.42), row("untrained", 0.4), row("raw", 0.6)])
    assert "not clearly different from the untrained encoder" in close[0]
    assert "worse than raw input" in close[0]
    assert "nothing beside it" in comparisons([row("trained", 0.4), row("raw", 0.4, "linear")])[0]


def test_horizons_are_charts_of_their_own() -> None:
    metrics = [
        {"step": 1, "loss": 2.0, "horizons": [1.0, 2.0], "horizon_accuracy": [0.1, 0.1]},
        {"step": 9, "loss": 1.0, "horizons": [1.0, 2.0], "horizon_accuracy": [0.9, 0.5], "horizon_bound": [2.0, 1.0],
         "horizon_ceiling": [3.0, 3.0]},
        {"step": 10, "loss": 1.0},
    ]  # fmt: skip
    _, accuracy, bound = curves(metrics)
    assert accuracy.along == "frames ahead" and accuracy.lines[0].y == [0.9, 0.5]
    assert [line.dashed for line in bound.lines] == [False, True] and bound.data()["along"] == "frames ahead"
    assert len(curves([{"step": 1, "loss": 1.0, "horizons": [1.0], "horizon_accuracy": [None]}])) == 1
