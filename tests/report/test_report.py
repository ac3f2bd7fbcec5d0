"""The page: whole, self-contained, safe, and readable whatever is missing."""

import json
import math
import re
import shlex
import sys
from dataclasses import replace
from html.parser import HTMLParser
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from nearfar.cli import main
from nearfar.evaluation.metrics import wilson
from nearfar.evaluation.results import Results, Row
from nearfar.report.compare import write_comparison
from nearfar.report.curves import overlaid_curves, training_curves
from nearfar.report.figures import draw_curves
from nearfar.report.page import write_report
from nearfar.report.run import HealthVerdict, read_run
from nearfar.report.samples import SAMPLES, ReportSamples
from nearfar.report.svg import line_chart
from nearfar.report.thumbnail_sheet import make_sheet
from nearfar.report.verdict import comparisons, difference, health, overall
from tests.support.facts import facts, tells

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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

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
        for s in range(31)
    ]
    lines[7] |= {"knn": 0.5, "effective_rank": 30.5}
    for s in (0, 10, 30):  # positives rise from the middle to the top
        near = [0] * 50
        near[25 + s // 2] = 8
        lines[s] |= {"positives": near, "negatives": [0] * 20 + [7] * 10 + [0] * 20}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 30, "lo')
    verdicts = [{"step": 9, "level": "warning", "text": name}, {"step": 20, "level": "good", "text": "it learns"}]
    (folder / "verdicts.json").write_text(json.dumps(verdicts))
    Results([row("trained", 0.83), row("untrained", 0.4), row("raw", 0.12), row(name, 0.5)], [name]).save(
        folder / "evaluation.json"
    )
    Image.new("RGB", (40, 20), "teal").save(folder / "views.png")


def seen(name: str, n: int = 30, *, labelled: bool = True, pictured: bool = True, texts: str = "") -> ReportSamples:
    """Samples in two classes, the first named so."""
    chance = np.random.default_rng(0)
    order = np.arange(n)
    return ReportSamples(
        data=np.array(["glyphs", "test", "100"]),
        names=np.array([f"{name}/{i}.png" for i in range(n)]),
        texts=np.array([texts and f"{texts} {i}" for i in range(n)]),
        labels=order % 2 if labelled else np.full(n, -1),
        classes=np.array([name, "dog"] if labelled else [], np.str_),
        clusters=order % 3,
        components=chance.standard_normal((n, 4)).astype(np.float32),
        variance=np.array([0.5, 0.25, 0.1, 0.05], np.float32),
        nearest=np.stack([np.roll(order, -k)[:n] for k in range(1, 9)], 1),
        similarity=np.tile(np.linspace(0.9, 0.2, 8, dtype=np.float32), (n, 1)),
        random=np.array([3, 4]),
        worst=np.array([5]),
        hard=np.array([[0, 1], [2, 3]]),
        hard_similarity=np.array([0.95, 0.9], np.float32),
        suspected=np.array([[0, 2]]),
        suspected_similarity=np.array([0.99], np.float32),
        counts=np.array([435, 87, 29]),
        positive=np.array(0.7, np.float32),
        crossed=np.array(False),
        sheet=np.frombuffer(
            make_sheet(chance.integers(0, 255, (n, 16, 16, 3), np.uint8)) if pictured else b"", np.uint8
        ),
        umap=np.empty((0, 2), np.float32),
    )


def test_a_whole_run_is_told(tmp_path: Path) -> None:
    fill(tmp_path)
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html" and path.stat().st_size < 300_000
    page = Page(path.read_text())
    for part in (
        "simclr was trained on cat for 30 steps (epoch 3); the loss went from 5 to 0.161, and k-NN",
        "Healthy: it learns; 1 earlier warning",
        "k-NN reaches 83.0 % (81.0 to 85.0) accuracy on 2,000 test samples of glyphs",
        "2.1 times the untrained encoder at 40.0 % (38.0 to 42.0), 43.0 points (40.2 to 45.8) more; 6.9 times",
        "nothing learned 6.2",
        "Effective rank 30.5",
        "epochs: 3",
        "torch",
    ):
        assert part in page.text, part
    assert sum(tag == "img" for tag, _ in page.tags) == 1
    assert all(attrs.get("alt") for tag, attrs in page.tags if tag == "img")
    kinds = [chart["kind"] for chart in json.loads(page.scripts[1])]
    assert sorted(kinds) == ["heat"] * 2 + ["histograms"] + ["lines"] * 5
    for title in ("Loss", "Accuracy of the nearest neighbors", "Directions in use", "Learning rate"):
        assert title in page.text
    assert tells(page.text.replace("0.61", "0.62"), "positives 0.62 negatives 0.00")
    assert sum(tag == "polyline" for tag, _ in page.tags) == 5  # of a single value a point


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
    assert not [attrs for tag, attrs in page.tags if tag == "img"]  # of what is a chart there is no picture
    first, other = (chart for chart in json.loads(page.scripts[1]) if chart["kind"] == "heat")
    assert (
        first["names"] == [name, "dogs", "none"] and first["z"] == [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 0]] == other["z"]
    )
    assert f"87.5 % are right; most frequent errors: {name} taken for dogs (1 time)" in page.text
    assert page.text.count("Each class: trained, knn, glyphs test") == 1 and "Each class: raw" not in page.text
    assert name in page.text and "b" not in {tag for tag, _ in page.tags}
    assert "75.0 %" in page.text and "85.7 %" in page.text
    (tmp_path / "evaluation" / "glyphs_test" / "knn-trained.npz").write_bytes(b"no arrays")
    assert tells(Page(write_report(tmp_path).read_text()).text, "knn-trained.npz")


def test_nothing_is_loaded_from_anywhere(tmp_path: Path) -> None:
    fill(tmp_path)
    seen("cat").save(tmp_path)
    page = Page(write_report(tmp_path).read_text())
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "object", "embed", "base")]
    for name in ("src", "href", "srcset", "action", "poster", "data"):
        for target in page.attributes(name):
            assert target.startswith(("#", "data:image/png;base64,")), target[:80]
    assert "http" not in "".join(page.scripts).replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    anchors = set(page.attributes("id"))
    assert all(target[1:] in anchors for target in page.attributes("href") if target.startswith("#"))
    style = (tmp_path / "report.html").read_text().split("</style>")[0]
    assert style.count("url(") == style.count("url(data:image/webp;base64,") == 1
    policy = next(attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs)
    assert (
        policy is not None and policy.startswith("default-src 'none'") and "http" not in policy and "eval" not in policy
    )


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    folder = tmp_path / "<b>run</b>".replace("/", "∕")
    folder.mkdir()
    fill(folder, HOSTILE)
    seen(HOSTILE).save(folder)
    metrics = folder / "metrics.jsonl"
    metrics.write_text(json.dumps({"step": 1, "loss": 1.0, "epoch": HOSTILE, HOSTILE: 3}) + "\n")
    page = Page(write_report(folder).read_text())
    assert len(page.scripts) == 3 and "</script" not in page.scripts[1] and "alert(" not in page.scripts[2]
    assert json.loads(page.scripts[1])[-1]["classes"] == [HOSTILE, "dog"]  # as data, which is set as text
    assert page.text.count(HOSTILE) >= 5
    assert all("on" not in {name[:2] for name in attrs} for _, attrs in page.tags)
    assert "b" not in {tag for tag, _ in page.tags}


def test_a_folder_with_its_configuration_alone(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("method: byol\n")
    path = write_report(tmp_path)
    page = Page(path.read_text())
    for part in (
        "byol No metrics",
        "not evaluated",
        "No curves",
        "No health verdict",
        "No picture of the views",
        "No similarities",
        "Not shown: report/samples.npz is missing",
    ):
        assert tells(page.text, part), part
    assert len(page.scripts) == 2 and path.stat().st_size < 50_000


def test_an_empty_folder_and_no_folder(tmp_path: Path) -> None:
    assert tells(Page(write_report(tmp_path).read_text()).text, "config.yaml")
    with pytest.raises(FileNotFoundError, match=facts("folder run")):
        write_report(tmp_path / "nowhere")


NAMES = ("config.yaml", "verdicts.json", "evaluation.json", "views.png", "environment.json", SAMPLES)


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_file_costs_only_its_own_part(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"\xff[1, {")
    text = Page(write_report(tmp_path).read_text()).text
    assert tells(text, f"{name}") and "Loss" in text


def test_half_a_line_and_numbers_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "loss": NaN}\n{"step": 1, "loss": 3}\n[]\n{"loss": 1}\n{"st')
    run = read_run(tmp_path)
    assert [line["step"] for line in run.metrics] == [1, 2]
    assert [chart.curves[0].y for chart in training_curves(run.metrics)] == [[3.0]]
    Page(write_report(tmp_path).read_text())


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    (chart,) = training_curves([{"step": s, "loss": math.exp(-s)} for s in range(12_345)])
    assert len(chart.curves[0].x) <= 501
    assert chart.curves[0].x[0] == 0 and chart.curves[0].x[-1] == 12_344


def test_health_in_words() -> None:
    levels = ("good", "warning", "error")
    good, warning, error = (HealthVerdict(i, level, level.upper()) for i, level in enumerate(levels))
    assert health([]) == ("note", "Not judged: no health verdict was recorded")
    assert health([warning, good])[0] == "good"
    assert health([good, warning])[0] == "warning" and tells(health([good, warning])[1], "WARNING")
    assert health([error, good])[0] == "error" and tells(health([error, good])[1], "Not healthy ERROR")


def test_comparison_claims_no_more_than_the_intervals_show() -> None:
    close = comparisons([row("trained", 0.42), row("untrained", 0.4), row("raw", 0.6)])
    assert "not clearly different from the untrained encoder" in close[0]
    assert "worse than raw input" in close[0]
    assert "without a baseline" in comparisons([row("trained", 0.4), row("raw", 0.4, "linear")])[0]


def test_horizons_are_charts_of_their_own() -> None:
    metrics = [
        {"step": 1, "loss": 2.0, "horizons": [1.0, 2.0], "horizon_accuracy": [0.1, 0.1]},
        {"step": 9, "loss": 1.0, "horizons": [1.0, 2.0], "horizon_accuracy": [0.9, 0.5], "horizon_bound": [2.0, 1.0],
         "horizon_ceiling": [3.0, 3.0]},
        {"step": 10, "loss": 1.0},
    ]  # fmt: skip
    _, accuracy, bound = training_curves(metrics)
    assert accuracy.x_title == "frames ahead" and accuracy.curves[0].y == [0.9, 0.5]
    assert [line.dashed for line in bound.curves] == [False, True] and "frames ahead" in line_chart(bound)[0]
    assert len(training_curves([{"step": 1, "loss": 1.0, "horizons": [1.0], "horizon_accuracy": [None]}])) == 1


def test_single_samples_are_shown(tmp_path: Path) -> None:
    fill(tmp_path)
    seen("cat").save(tmp_path)
    page = Page(write_report(tmp_path).read_text())
    for part in (
        "30 of 100 test samples of glyphs",
        "50.0 % and 25.0 % of the variance",
        "50.0 % of the 8 nearest have the same label",
        "Worst: fewest neighbours of their own label",
        "87 of 435 (20 %) are at least as similar as the median of two views of one sample (0.70)",
        "33.3 % of them share a label",
        "similarity 0.99",
    ):
        assert tells(page.text, part), part
    thumbs = [attrs for _, attrs in page.tags if attrs.get("class") == "thumb"]
    assert len(thumbs) == 3 * 9 + 3 * 2 and all(attrs["aria-label"] and attrs["role"] == "img" for attrs in thumbs)
    assert thumbs[0]["style"] == "--c:3;--r:0" and "cat/" in str(thumbs[1]["aria-label"])  # sample 3, of six in a row
    found = next(chart for chart in json.loads(page.scripts[1]) if chart["kind"] == "map")
    assert found["kind"] == "map" and found["columns"] == 6 and len(found["places"]["PCA"]["x"]) == 30


def test_texts_without_labels_are_shown_as_words(tmp_path: Path) -> None:
    seen("line", labelled=False, pictured=False, texts="<i>many</i> words").save(tmp_path)
    page = Page(write_report(tmp_path).read_text())
    assert "i" not in {tag for tag, _ in page.tags} and page.text.count("<i>many</i> words 4") >= 2
    assert "Worst: farthest from all others" in page.text and "above the median positive" in page.text
    assert (
        not [attrs for _, attrs in page.tags if attrs.get("class") == "thumb"]
        and "label" not in page.text.split("Map")[2]
    )


def test_samples_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    for wrong in ({"nearest": np.full((30, 8), 30)}, {"labels": np.full(30, 2)}, {"umap": np.zeros((3, 2), np.float32)},
                  {"sheet": np.frombuffer(make_sheet(np.zeros((40, 8, 8, 3), np.uint8)), np.uint8)},
                  {"components": np.full((30, 4), np.nan, np.float32)}):  # fmt: skip
        replace(seen("cat"), **wrong).save(tmp_path)
        text = Page(write_report(tmp_path).read_text()).text
        assert text.count("report/samples.npz could not be read") == 4


def test_a_run_that_was_stopped_is_not_told_as_finished(tmp_path: Path) -> None:
    fill(tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()[:8]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    (tmp_path / "verdicts.json").write_text("[]")
    text = Page(write_report(tmp_path).read_text()).text
    assert "for 7 steps (epoch 0.7 of 3: not finished); the loss went from 5 to 0.625, and k-NN" in text
    (tmp_path / "checkpoints").mkdir()
    for step in (8, 14):
        (tmp_path / "checkpoints" / f"step-{step:09d}.pt").touch()
    text = Page(write_report(tmp_path).read_text()).text  # what was done is not what was logged
    assert "for 14 steps (epoch 1.4 of 3: not finished); the loss went from 5 to 0.625 at step 7" in text
    assert "k-NN on held-out samples was 50.0 % at step 7." in text  # one measurement is no course
    (tmp_path / "metrics.jsonl").write_text(lines[1])
    (tmp_path / "checkpoints" / "step-000000014.pt").unlink()
    assert (
        "for 8 steps (epoch 0.8 of 3: not finished); the loss was 2.5 at step 1."
        in Page(write_report(tmp_path).read_text()).text
    )


def level_of(folder: Path) -> tuple[str, str]:
    """The colour of a page's verdict, and its first sentence."""
    return overall(read_run(folder))


def test_only_what_is_known_to_be_well_is_called_healthy(tmp_path: Path) -> None:
    fill(tmp_path)
    assert level_of(tmp_path)[0] == "good"
    (tmp_path / "verdicts.json").write_text("[{")
    assert level_of(tmp_path) == ("note", "Not judged: verdicts.json could not be read")
    (tmp_path / "verdicts.json").unlink()
    level, said = level_of(tmp_path)
    assert level == "note" and tells(said, "not judged health")

    few, well = {"step": 0, "level": "warning", "text": "too few"}, {"step": 30, "level": "good", "text": "no collapse"}
    (tmp_path / "verdicts.json").write_text(json.dumps([few, well]))
    assert level_of(tmp_path)[0] == "good"  # the evaluation has the last word
    (tmp_path / "evaluation.json").unlink()
    level, said = level_of(tmp_path)
    assert level == "note" and tells(said, "not judged not evaluated no collapse")
    (tmp_path / "verdicts.json").write_text(json.dumps([well]))
    level, said = level_of(tmp_path)
    assert level == "good" and tells(said, "healthy no collapse not evaluated")

    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()[:8]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    (tmp_path / "verdicts.json").write_text(json.dumps([well | {"step": 5}]))
    level, said = level_of(tmp_path)
    assert level == "note" and tells(said, "not finished no collapse")
    (tmp_path / "verdicts.json").unlink()
    level, said = level_of(tmp_path)
    assert level == "note" and tells(said, "not finished not judged")
    page = Page(write_report(tmp_path).read_text())
    assert any(attrs.get("class") == "verdict note" for _, attrs in page.tags)


def test_a_run_whose_loss_is_not_finite_has_a_page_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("method: simclr\nepochs: 3\n")
    lines = [{"step": s, "epoch": s / 10, "loss": 5.0 * s, "lr": 1.8e29 * s, "gradient_norm": 9e30 * s} for s in (1, 2)]
    lines.append({"step": 3, "epoch": 0.3, "loss": None, "lr": None, "effective_rank": None})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = "loss is not finite at step 4: training stops; the last good checkpoint is step-000000004.pt"
    (tmp_path / "verdicts.json").write_text(json.dumps([{"step": 4, "level": "error", "text": text}]))
    page = Page(write_report(tmp_path).read_text())
    assert f"Not healthy: {text}" in page.text and "for 4 steps (epoch 0.4 of 3: not finished)" in page.text
    assert any(attrs.get("class") == "verdict error" for _, attrs in page.tags)
    assert "Learning rate" in page.text and "NaN" not in page.text and "2e29" in page.text


def test_a_learned_temperature_is_a_curve_and_a_fixed_one_a_number(tmp_path: Path) -> None:
    learned = [{"step": s, "temperature": 0.1 / s, "logit_scale": 10.0 * s} for s in (1, 2, 4)]
    (chart,) = training_curves(learned)
    assert chart.title == "Temperature" and chart.curves[0].y == [0.1, 0.05, 0.025]
    fixed = [{"step": s, "loss": 1.0 / s, "temperature": 0.2} for s in (1, 2)]
    assert [chart.title for chart in training_curves(fixed)] == ["Loss"]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in fixed))
    assert "The temperature is 0.2 at every step." in Page(write_report(tmp_path).read_text()).text
    both = overlaid_curves(
        {"clip": learned, "simclr": [{"step": 1, "temperature": 0.2}, {"step": 4, "temperature": 0.2}]}
    )
    assert [line.y[-1] for line in both[-1].curves] == [0.025, 0.2]


@pytest.mark.parametrize("low, high", [(0.062412, 0.062428), (0.0, 1.8e29), (2.739e-6, 0.00093), (1.2e6, 1.2e6 + 9)])
def test_numbers_beside_a_chart_have_room(low: float, high: float) -> None:
    (chart,) = training_curves([{"step": 0, "lr": low}, {"step": 100_000, "lr": high}])
    drawing = line_chart(chart)[0]
    numbers = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(end|middle)">([^<]+)</text>', drawing)
    texts = [text for _, anchor, text in numbers if anchor == "end"]
    assert len(set(texts)) == len(texts) > 2  # each tells its line from the others
    for x, anchor, text in numbers:
        wide = 7 * len(text)  # in a wide font
        left = float(x) - (wide if anchor == "end" else wide / 2)
        assert left >= 0 and left + wide <= 340, text


def test_the_command_that_repeats_a_run_works_where_the_page_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "my run").mkdir(parents=True)
    fill(tmp_path / "runs" / "my run")
    monkeypatch.chdir(tmp_path)
    for given in (Path("runs/my run"), tmp_path / "runs" / "my run", Path("runs/my run/../my run")):
        text = Page(write_report(given).read_text()).text
        words = shlex.split(text.partition("To run it again on the same data: ")[2].partition("config.yaml\n")[0])
        assert words[:3] == ["nearfar", "train", "--config"] and Path(words[3]).is_file()
        assert Path(words[5]).parent.is_dir() and not Path(words[5]).exists()
    monkeypatch.chdir(tmp_path / "runs" / "my run")
    assert f"--out '{tmp_path}/runs/my run-again'" in Page(write_report(".").read_text()).text


def test_captions_stand_beside_their_pictures(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "views.txt").write_text("a teal letter K\n<b>bold</b>\n")
    page = Page(write_report(tmp_path).read_text())
    assert "a teal letter K" in page.text and "<b>bold</b>" in page.text
    assert any(attrs.get("class") == "captioned" for _, attrs in page.tags)


def test_nothing_is_claimed_of_negatives_where_views_were_not_compared(tmp_path: Path) -> None:
    nothing = {"positive": np.array(np.nan, np.float32), "counts": np.array([435, 0, 0])}
    nothing |= {"suspected": np.empty((0, 2), np.int64), "suspected_similarity": np.empty(0, np.float32)}
    replace(seen("line", labelled=False, pictured=False, texts="words"), **nothing).save(tmp_path)
    text = Page(write_report(tmp_path).read_text()).text
    assert "was not measured." in text and "Unknown without the similarity of views." in text
    for claim in ("median positive", "There are none"):
        assert claim not in text


def test_what_is_no_better_than_untrained_is_not_well(tmp_path: Path) -> None:
    fill(tmp_path)
    Results([row("trained", 0.41), row("untrained", 0.4)]).save(tmp_path / "evaluation.json")
    page = Page(write_report(tmp_path).read_text())
    assert tells(page.text, "not clearly better untrained")
    assert any(attrs.get("class") == "verdict warning" for _, attrs in page.tags)


def test_a_good_shape_alone_is_not_called_healthy(tmp_path: Path) -> None:
    fill(tmp_path)
    shape = [
        Row(who, "geometry", "effective rank", 20.0, None, None, "test", "a", 9) for who in ("trained", "untrained")
    ]
    for rows, told in (
        (shape, "it was not evaluated on a task"),
        ([*shape, row("trained", 0.41), row("untrained", 0.4)], "Look closer: start training: learns"),
    ):
        Results(rows).save(tmp_path / "evaluation.json")
        assert tells(Page(write_report(tmp_path).read_text()).text, told)


def test_the_interval_of_a_difference_is_newcombes() -> None:
    """His first example: 56/70 and 48/80, method 10: 0.0524 to 0.3339."""

    def share(k: int, n: int) -> Row:
        return Row("trained", "knn", "accuracy", k / n, *wilson(k, n), "test", "glyphs", n)

    for pair in ((share(56, 70), share(48, 80)), (share(48, 80), share(56, 70))):
        assert np.round(difference(*pair), 4).tolist() == [0.2, 0.0524, 0.3339]


def test_less_is_better_where_errors_are_counted() -> None:
    def wrong(encoder: str, value: float) -> Row:
        return Row(encoder, "ctc", "word error rate", value, value - 0.05, value + 0.05, "test", "spoken", 50)

    better, worse = (comparisons([wrong("trained", x), wrong("raw", 0.7 - x)])[0] for x in (0.2, 0.5))
    assert tells(better, "30.0 (22.9 to 37.1) less raw") and tells(worse, "worse raw")


def test_runs_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "empty"]
    for folder, value in zip(folders, (0.83, 0.7, 0.5), strict=True):
        folder.mkdir(parents=True)
        if folder.name == "run":
            fill(folder)
            Results([row("trained", value), row("raw", 0.1)]).save(folder / "evaluation.json")
    (folders[1] / "config.yaml").write_text("method:\n  name: moco\n  queue: 96\ndata: cat\nepochs: 3\n")
    (folders[2] / "config.yaml").write_text("epochs: [broken")
    out = tmp_path / "both.html"
    assert main(["report", *map(str, folders), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"report: {out}\n"
    page = Page(out.read_text())
    for part in (
        "3 runs",
        "a/run",
        "b/run",
        "method.name",
        "queue",
        "moco",
        "Not evaluated",
        "config.yaml read",
    ):
        assert tells(page.text, part), part
    bold = [attrs for _, attrs in page.tags if attrs.get("class") == "number best"]
    assert len(bold) == 1  # 83 % with an interval above that of 70 %
    loss = json.loads(page.scripts[1])[0]["lines"]
    assert [line["colour"] for line in loss if not line["dashed"]] == [0, 1]
    assert "Settings that all runs share" in page.text
    (folders[0] / "config.yaml").write_text("method: simclr\noptions: {}\noptimizer:\n  lr: null\n")
    (folders[1] / "config.yaml").write_text("method: moco\noptions:\n  queue_size: 96\noptimizer:\n  lr: 0.1\n")
    write_comparison(folders, out)
    told = Page(out.read_text()).text
    assert "options.temperature0.50.2–" in told and "options.queue_size–96–" in told  # also of what was not set
    assert "optimizer.lrdefault0.1–" in told
    with pytest.raises(ValueError, match=facts("twice")):
        write_comparison([folders[0], tmp_path / "a" / ".." / "a" / "run"], out)


def test_the_command_writes_the_page_anew_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path / 'report.html'}\n"
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "copy.html")]) == 0
    assert (tmp_path / "copy.html").read_bytes() == (tmp_path / "report.html").read_bytes()
    (tmp_path / "nothing").mkdir()
    for wrong, said in (("nowhere", "nowhere"), ("nothing", "nothing")):
        assert main(["report", str(tmp_path / wrong)]) == 1
        assert tells(capsys.readouterr().err, said)


def test_umap_is_added_once_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Plane:
        def __init__(self, **settings: object) -> None:
            calls.append(settings)

        def fit_transform(self, x: np.ndarray) -> np.ndarray:
            return x[:, 2:4].astype(np.float64)

    module = ModuleType("umap")
    module.UMAP = Plane  # type: ignore[attr-defined]
    module.__spec__ = ModuleSpec("umap", None)
    monkeypatch.setitem(sys.modules, "umap", module)
    seen("cat").save(tmp_path)
    write_report(tmp_path)
    assert not calls  # a run does not wait for it
    for _ in range(2):
        page = Page(write_report(tmp_path, umap=True).read_text())
        assert list(json.loads(page.scripts[1])[-1]["places"]) == ["PCA", "UMAP"]
    assert len(calls) == 1 and calls[0]["random_state"] == 0
    monkeypatch.setattr(Plane, "fit_transform", lambda self, x: 1 / 0)
    seen("cat").save(tmp_path)
    assert "UMAP failed: division by zero." in Page(write_report(tmp_path, umap=True).read_text()).text


@pytest.mark.slow
def test_umap_lays_out_neighborhoods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The package itself: two clouds far apart stay apart, and the wait is announced."""
    pytest.importorskip("umap", reason="umap-learn is not installed: pip install 'nearfar[umap]'")
    two = seen("cat", 60)
    far = two.components + 50 * two.labels[:, None]
    replace(two, components=far.astype(np.float32)).save(tmp_path)
    fill(tmp_path)
    for said in ("umap: laying out 60 samples", "report: "):
        assert main(["report", str(tmp_path)]) == 0
        assert capsys.readouterr().out.startswith(said)  # it is made once
    places = ReportSamples.load(tmp_path / SAMPLES).umap
    first, second = places[two.labels == 0], places[two.labels == 1]
    apart = np.linalg.norm(first.mean(0) - second.mean(0))
    assert places.shape == (60, 2) and apart > 2 * max(first.std(0).max(), second.std(0).max())


def test_the_first_lines_are_the_verdict_and_bars(tmp_path: Path) -> None:
    fill(tmp_path)
    text = write_report(tmp_path).read_text()
    head = text[text.index("<header>") : text.index("</header>")]
    widths = re.findall(r'class="bar(?: own)?" style="width:([\d.]+)%"', head)
    assert widths == ["83.0", "40.0", "12.0"]  # trained, start, best baseline
    assert head.index('class="level') < head.index('class="scores"') < head.index("Try next") < head.index("In words")
    assert "better" in head and "raw" in head


def test_accuracies_go_from_0_to_1_and_every_chart_says_what_to_see() -> None:
    keys = ("loss", "knn", "accuracy", "effective_rank", "deviation", "lr", "samples_per_second")
    charts = training_curves([{"step": s, **dict.fromkeys(keys, 0.4 + s / 100)} for s in range(3)])
    ranges = {chart.title: line_chart(chart)[2] for chart in charts}
    assert [ranges[title] for title in ranges if "ccuracy" in title or "right view" in title] == [(0.0, 1.0)] * 2
    assert ranges["Directions in use"][0] == 0 and ranges["Loss"][0] > 0.3
    assert all(chart.look_for and chart.sentence().startswith(chart.look_for) for chart in charts)
    assert {chart.group for chart in charts} == {"learning", "health", "details"}
