"""Better, same or WORSE: decided on the same samples, told first, and never green for a run below its start."""

import io
import json
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import pytest
import torch
from rich.console import Console

from nearfar.evaluation.metrics import wilson
from nearfar.evaluation.paired import mcnemar
from nearfar.evaluation.results import Comparison, Results, Row, shown
from nearfar.metric_text import MetricStyle
from nearfar.report.judgement import judge
from nearfar.report.page import write_report
from nearfar.report.refresh import print_verdict, write_verdict
from nearfar.report.run import read_run
from nearfar.report.verdict import first_line, verdict
from tests.support.facts import facts, tells

N = 105


def row(encoder: str, right: int, protocol: str = "knn") -> Row:
    return Row(encoder, protocol, "accuracy", right / N, *wilson(right, N), "test", "photos", N)


def compared(won: int, lost: int, baseline: str, role: str, protocol: str = "knn") -> Comparison:
    """Trained beside another, of which it wins and loses so many samples."""
    first = torch.tensor([True] * won + [False] * lost + [True] * (N - won - lost))
    second = torch.tensor([False] * won + [True] * lost + [True] * (N - won - lost))
    return Comparison("trained", baseline, protocol, "accuracy", *mcnemar(first, second), "test", "photos", role)


def measured(*comparisons: Comparison, right: int = 60) -> Results:
    rows = []
    for each in comparisons:
        rows += [row("trained", right, each.protocol)] if row("trained", right, each.protocol) not in rows else []
        rows.append(row(each.baseline, right - round(each.difference * N), each.protocol))
    return Results(rows, comparisons=list(comparisons))


def start(won: int, lost: int, protocol: str = "knn") -> Comparison:
    return compared(won, lost, "untrained", "start", protocol)


def raw(won: int, lost: int, protocol: str = "knn") -> Comparison:
    return compared(won, lost, "raw", "baseline", protocol)


@pytest.mark.parametrize(
    ("comparisons", "word", "level"),
    [
        ([start(7, 0), raw(9, 0)], "better", "good"),  # 7 in 105: intervals overlap, p = 0.016
        ([start(5, 0), raw(9, 0)], "same", "warning"),  # p = 0.06
        ([start(0, 7), raw(9, 0)], "WORSE", "error"),
        ([start(9, 0), raw(0, 9)], "WORSE", "warning"),  # a cheap baseline is better
        ([start(9, 0), raw(9, 0), compared(0, 8, "colour histogram", "baseline")], "WORSE", "warning"),  # the best one
        ([start(30, 0), start(0, 7, "linear")], "WORSE", "error"),  # one metric is enough
        ([start(9, 0), start(2, 2, "linear"), raw(9, 0)], "better", "good"),
        ([start(9, 0), start(1, 3, "linear"), raw(9, 0)], "same", "warning"),  # behind by one metric, if within chance
        ([start(9, 0)], "better", "good"),
        ([start(9, 0), compared(0, 40, "timm:resnet50", "encoder")], "better", "good"),  # others do not count
    ],
)
def test_the_word_is_that_of_the_paired_comparisons(comparisons: list[Comparison], word: str, level: str) -> None:
    found = judge(measured(*comparisons))
    assert found is not None and (found.word, found.level) == (word, level), found
    assert found.line.lower().startswith(word.lower()) or word == "same"


def test_unpaired_intervals_would_have_missed_it() -> None:
    paired = measured(start(7, 0), raw(9, 0))
    alone = judge(replace(paired, comparisons=[]))
    assert alone is not None and alone.word == "same"


def test_metrics_that_do_not_decide_and_shapes_are_left_out() -> None:
    shape = [replace(row(who, 50), protocol="geometry", metric="RankMe") for who in ("trained", "untrained")]
    assert judge(Results(shape)) is None and judge(None) is None and judge(Results([row("trained", 50)])) is None
    several = measured(start(9, 0), raw(9, 0), compared(0, 9, "untrained", "start", "clustering"))
    found = judge(several)
    assert found is not None and found.word == "better"  # k-NN and the linear probe decide if they are there


def test_less_is_better_where_errors_are_counted() -> None:
    rows = [
        Row(who, "ctc", "word error rate", value, value - 0.05, value + 0.05, "test", "words", 50)
        for who, value in (("trained", 0.2), ("untrained", 0.5), ("raw", 0.7))
    ]
    paired = [
        Comparison(
            "trained", who, "ctc", "word error rate", gap, gap - 0.1, gap + 0.1, 0.001, 50, "test", "words", role
        )
        for who, gap, role in (("untrained", -0.3, "start"), ("raw", -0.5, "baseline"))
    ]
    found = judge(Results(rows, comparisons=paired))
    assert found is not None and found.word == "better"


def filled(folder: Path, results: Results) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text("method: simclr\ndata: photos\nepochs: 3\n")
    lines = [{"step": s, "epoch": s / 10, "loss": 5 / (1 + s)} for s in range(31)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "verdicts.json").write_text(json.dumps([{"step": 20, "level": "good", "text": "no collapse"}]))
    (folder / "card.json").write_text(json.dumps({"format": "nearfar encoder", "metrics": []}))
    results.save(folder / "evaluation.json")
    return folder


@pytest.mark.parametrize(
    ("comparisons", "word", "level"),
    [
        ([start(0, 9), raw(9, 0)], "WORSE", "error"),
        ([start(9, 0), raw(9, 0)], "Better", "good"),
        ([start(3, 2), raw(9, 0)], "Same", "warning"),
    ],
)
def test_it_is_first_on_console_page_and_card(
    comparisons: list[Comparison], word: str, level: str, tmp_path: Path
) -> None:
    results = measured(*comparisons)
    folder = filled(tmp_path / "run", results)
    found, line = first_line(read_run(folder))
    assert found == level and line.startswith(word) and tells(line, "its start")
    out = io.StringIO()
    print_verdict(folder, results, Console(file=out, width=80), report=Path("run/report.html"))
    said = out.getvalue().splitlines()
    assert said[0] == line and said[-1].startswith("Try next: nearfar ") and len(said) == 4
    assert all(len(each) <= 80 for each in said[:-1]), said  # a command is never broken
    assert tells(said[1], "trained start raw") and tells(said[2], "report run/report.html")
    page = write_report(folder).read_text()
    assert f'class="verdict {level}"' in page and f'<p class="level {level}">{line}</p>' in page
    assert ('class="verdict good"' in page) == (word == "Better")
    write_verdict(folder)
    card = json.loads((folder / "card.json").read_text())
    assert next(iter(card)) == "verdict" and card["verdict"] == line and card["verdict_level"] == level
    assert card["format"] == "nearfar encoder"


def test_a_collapse_is_not_green_however_good_the_numbers(tmp_path: Path) -> None:
    folder = filled(tmp_path / "run", measured(start(9, 0), raw(9, 0)))
    (folder / "verdicts.json").write_text(json.dumps([{"step": 20, "level": "error", "text": "collapse"}]))
    level, sentences = verdict(read_run(folder))
    assert level == "error" and tells(sentences[0], "better") and tells(sentences[1], "collapse")


def test_an_encoder_of_another_library_is_judged_too(tmp_path: Path) -> None:
    results = measured(start(9, 0), raw(0, 9))
    rows = [replace(row, encoder="timm:x" if row.encoder == "trained" else row.encoder) for row in results.rows]
    other = Results(rows, comparisons=[replace(each, encoder="timm:x") for each in results.comparisons])
    other.save(tmp_path / "evaluation.json")
    out = io.StringIO()
    print_verdict(tmp_path, other, Console(file=out, width=80))
    said = out.getvalue().splitlines()
    assert tells(said[0], "WORSE raw better start") and not any(line.startswith("Try next") for line in said)


def test_on_several_data_the_one_that_is_worse_is_named() -> None:
    here, there = measured(start(9, 0), raw(9, 0)), measured(start(0, 9), raw(9, 0))
    elsewhere = [replace(row, data="others") for row in there.rows]
    both = Results(
        [*here.rows, *elsewhere],
        comparisons=[*here.comparisons, *(replace(each, data="others") for each in there.comparisons)],
    )
    found = judge(both)
    assert found is not None and found.level == "error" and tells(found.line, "WORSE start others")


def test_many_encoders_with_long_names_stay_in_80_columns(tmp_path: Path) -> None:
    others = [compared(3, 1, f"timm:a_network_with_a_name_that_is_long_{i}", "encoder") for i in range(3)]
    results = measured(start(9, 0), raw(9, 0), compared(5, 2, "colour histogram", "baseline"), *others)
    results.notes.append("a note " * 40)
    folder = filled(tmp_path / "run", results)
    for width, every in product((80, 120), (False, True)):
        out = io.StringIO()
        print_verdict(folder, results, Console(file=out, width=width), every=every)
        lines = out.getvalue().splitlines()
        assert all(len(line) <= width for line in lines[:-1])
        assert all(any(tells(line, each) for line in lines) for each in ("trained", "start", "better"))
        assert ("█" in out.getvalue()) is (width == 120)
        assert every or sum("than timm:a_network" in line for line in lines) == 3


def test_a_metric_from_outside_is_written_and_compared_as_its_protocol_declares(tmp_path: Path) -> None:
    """A deviation of 1.40 against 2.10, of which less is better; also after the results were written and read."""
    spread = MetricStyle(2, less_is_better=True)
    rows = [
        Row(encoder, "mine:SPREAD", "spread", value, value - 0.1, value + 0.1, "test", "photos", N, stated=spread)
        for encoder, value in (("trained", 1.4), ("untrained", 2.1))
    ]
    again = Results.load(Results(rows).save(tmp_path / "evaluation.json"))
    for results in (Results(rows), again):
        found = judge(results)
        assert found is not None and found.word == "better"
        assert [shown(each) for each in results.rows] == ["1.40", "2.10"]


@pytest.mark.parametrize("style", [{}, "x", {"decimals": 10**9, "less_is_better": False, "least": 0.0}])
def test_a_style_that_is_none_is_refused(style: object, tmp_path: Path) -> None:
    content = {"results": [{**asdict(row("trained", 5)), "style": style}]}
    (tmp_path / "evaluation.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=facts("evaluation.json")):
        Results.load(tmp_path / "evaluation.json")
