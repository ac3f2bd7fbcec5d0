"""Hard negatives: against loops over all texts, and as a table that a run reads."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nearfar.cli import main
from nearfar.modalities.text.data import open_texts
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.search.mine import Mining, mine_negatives
from tests.model.test_texts import of_texts
from tests.support.facts import facts, tells
from tests.training.test_sentences import table, translations


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return of_texts(tmp_path_factory.mktemp("mine") / "run")


@pytest.fixture
def encoder(run: Path) -> Encoder:
    return load(run)


ANCHORS = [a for a, _ in translations()[:24]]
POSITIVES = [b for _, b in translations()[:24]]
ANCHORS[5] = ANCHORS[4]  # an anchor with two positives
POSITIVES[9] = POSITIVES[8]  # two anchors with one positive
POSITIVES[11] = ANCHORS[12]  # a positive that is another's anchor
CORPUS = [b for _, b in translations()[24:40]]


def by_loops(encoder: Encoder, settings: Mining, most: int) -> list[list[str]]:
    texts = list(dict.fromkeys([*POSITIVES, *CORPUS]))
    vectors = {text: F.normalize(encoder.encode([text]))[0] for text in {*texts, *ANCHORS}}
    found = []
    for anchor in ANCHORS:
        own = {p for a, p in zip(ANCHORS, POSITIVES, strict=True) if a == anchor}
        least = min(float(vectors[anchor] @ vectors[p]) for p in own)
        limit = least - settings.margin - settings.relative_margin * abs(least)
        ranked = sorted(
            ((float(vectors[anchor] @ vectors[t]), t) for t in texts if t not in own | {anchor}), reverse=True
        )
        kept = [
            t
            for s, t in ranked[settings.range_min : most]
            if s <= limit
            and (settings.max_score is None or s <= settings.max_score)
            and (settings.min_score is None or s >= settings.min_score)
        ]
        found.append(kept[: settings.negatives] if len(kept) >= settings.negatives else [])
    return found


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"negatives": 2, "relative_margin": 0.0},
        {"negatives": 1, "range_min": 3, "range_max": 6, "relative_margin": 0.0},
        {"negatives": 2, "max_score": 0.9, "min_score": 0.1, "relative_margin": 0.0},
        {"negatives": 1, "margin": 0.02, "relative_margin": 0.02, "range_max": 40},
    ],
)
@pytest.mark.parametrize("index", ["exact", "hnsw"])
def test_negatives_are_those_of_a_loop_over_all_texts(given: dict[str, Any], index: Any, encoder: Encoder) -> None:
    if index == "hnsw":
        pytest.importorskip("faiss")
    settings = Mining(**given)
    found = mine_negatives(encoder, ANCHORS, POSITIVES, settings, corpus=CORPUS, index=index)
    expected = by_loops(encoder, settings, settings.range_max or 10 * settings.negatives + settings.range_min)
    assert found == expected and any(found)
    assert found[4] == found[5]  # of one anchor


def test_drawn_negatives_depend_on_the_seed_alone(encoder: Encoder) -> None:
    given = {"negatives": 2, "relative_margin": 0.0, "sampling": "random"}
    first, again, other = (
        mine_negatives(encoder, ANCHORS, POSITIVES, Mining(**given, seed=seed)) for seed in (0, 0, 1)
    )
    top = mine_negatives(encoder, ANCHORS, POSITIVES, Mining(negatives=20, relative_margin=0.0, range_max=20))
    assert first == again != other
    assert all(set(a) <= set(b) for a, b in zip(first, top, strict=True) if b)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_the_table_is_one_that_a_run_reads(
    suffix: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, object]] = [{"anchor": a, "positive": b} for a, b in translations()[:40]]
    rows[0]["positive"] = 'with "quotes", a comma\tand more'
    pairs, out = table(tmp_path / "pairs.csv", rows), tmp_path / f"mined{suffix}"
    lines = tmp_path / "corpus.txt"
    lines.write_text("\n".join(b for _, b in translations()[40:60]))
    words = ["mine", str(run), str(pairs), "-o", str(out), "--negatives", "2", "--relative-margin", "0"]
    assert main([*words, "--corpus", str(lines)]) == 0
    said = capsys.readouterr().out
    data = open_texts(out)
    assert data.paired and data.negatives is not None and {len(n) for n in data.negatives} == {2}
    assert tells(said, f"{len(data)} pairs 2 negatives {out}")
    known = {" ".join(str(row["anchor"]).split()): " ".join(str(row["positive"]).split()) for row in rows}
    assert all(known[a] == p for a, p in zip(data.texts, data.partners or [], strict=True))


def test_what_cannot_be_mined_is_told_in_a_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = str(table(tmp_path / "p.csv", [{"anchor": a, "positive": b} for a, b in translations()[:5]]))
    scored = str(table(tmp_path / "s.csv", [{"s1": a, "s2": b, "score": 1} for a, b in translations()[:5]]))
    for words, said in (
        ([pairs, "-o", "x.doc"], "x.doc .csv .parquet"),
        ([scored, "-o", "x.csv"], "s.csv anchor positive"),
        ([pairs, "-o", "x.csv", "--negatives", "0"], "negatives 0 1"),
        ([pairs, "-o", "x.csv", "--range-max", "2"], "range_max 2 3"),
        ([pairs, "-o", "x.csv", "--negatives", "50"], "negatives margins"),
    ):
        assert main(["mine", str(run), *words]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len([line for line in lines if line.strip()]) == 1 and tells(lines[-1], said), lines
    assert torch.is_grad_enabled()
    with pytest.raises(ValueError, match=facts("margin -1 0")):
        Mining(margin=-1)
