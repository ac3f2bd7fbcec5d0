"""Runs on pairs: hard negatives, a guide, nested dimensions and scores, from the table to the encoder."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.search.files import Embeddings
from nearfar.training.check_run import subject_of_run
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts, tells
from tests.training.runs import QUIET, config, stop_after, weights
from tests.training.test_sentences import SMALL, configured, recall, table, translations


def tuples(count: int = 60) -> list[dict[str, object]]:
    """Sentences with their translations and two wrong ones; every fifth says what another one says."""
    found = translations()
    rows: list[dict[str, object]] = []
    for n in range(count):
        a, b = found[2 * n]
        rows.append(
            {"anchor": a, "positive": b, "negative": found[2 * n + 1][1], "negative_2": found[(7 * n) % 144][1]}
        )
    return rows


def settings_of(tmp_path: Path, **given: Any) -> TrainConfig:
    path = table(tmp_path / "t.csv", tuples())
    return configured(path, **{"method": "pairs", "data": {"path": str(path), "validation": 0.0}, **given})


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, with another tokenizer than those that it guides."""
    folder = tmp_path_factory.mktemp("guide")
    lines = folder / "lines.txt"
    lines.write_text("\n".join(text for pair in translations() for text in pair))
    given = configured(lines, epochs=1, steps=2, text={**SMALL, "vocab_size": 300})
    Run(given, folder / "run", resume=False, console=QUIET).execute()
    return folder / "run"


def test_a_run_with_a_guide_and_hard_negatives_resumes_bit_for_bit_and_is_certified(
    guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    options = {"guide": str(guide), "guide_margin": 0.05, "symmetric": True}
    settings = settings_of(tmp_path, options=options, checkpoint_every=1)
    assert settings.embedding == "plain"  # the loss has seen the embeddings as they are
    whole = Run(settings, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            Run(settings, folder, resume=False, console=QUIET).execute()
    resumed = Run(settings, folder, resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name
    logged = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert logged[-1]["ceiling"] == pytest.approx(torch.tensor(48.0).log().item()) and "bound" not in logged[-1]
    (first, _) = subject_of_run(tmp_path / "whole").batches
    assert first.guide is not None and first.guide.shape[:2] == (12, 4) and first.negatives == 2


def test_the_guide_reads_the_texts_with_its_own_tokenizer(guide: Path, tmp_path: Path) -> None:
    run = Run(settings_of(tmp_path, options={"guide": str(guide)}), tmp_path / "run", resume=False, console=QUIET)
    setup, index = run.setup, torch.tensor([3, 0])
    assert setup.guide is not None
    rows = setup.guide.rows(setup.train.fetch(index), setup.train, index, step=0)
    encoder = nearfar.load(guide)
    for view, column in enumerate(setup.train.text_columns):
        torch.testing.assert_close(rows[:, view], encoder.encode([column[3], column[0]]))
    plain = Run(settings_of(tmp_path), tmp_path / "plain", resume=False, console=QUIET)
    assert plain.setup.guide is None
    with pytest.raises(ValueError, match=facts(f"guide {guide} sentences image")):
        Run(
            config("pairs", modality="image", options={"guide": str(guide)}),
            tmp_path / "x",
            resume=False,
            console=QUIET,
        )


def test_a_guide_changes_what_is_learned_and_caching_changes_nothing(
    guide: Path, tmp_path: Path, train_only: None
) -> None:
    def trained(name: str, **given: Any) -> dict[str, torch.Tensor]:
        text = {**SMALL, "dropout": 0.0}
        run = Run(settings_of(tmp_path, text=text, steps=3, **given), tmp_path / name, resume=False, console=QUIET)
        run.execute()
        return weights(run)

    options = {"guide": str(guide), "guide_margin": 0.3}
    guided, plain = trained("guided", options=options), trained("plain")
    cached = trained("cached", options=options, micro_batch_size=4)
    name = "encoder.token_embedding.weight"
    assert not torch.equal(guided[name], plain[name])
    torch.testing.assert_close(cached[name], guided[name], rtol=1e-4, atol=1e-6)


def test_pairs_teach_a_translation_and_its_first_numbers_alone_know_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [translations()[i] for i in torch.randperm(144, generator=torch.Generator().manual_seed(0)).tolist()]
    rows: list[dict[str, object]] = [{"anchor": a, "positive": b} for a, b in pairs[:112]]
    path = table(tmp_path / "t.csv", rows)
    given: dict[str, Any] = {"backbone": "text-micro", "epochs": 30, "batch_size": 16, "text": SMALL}
    given |= {"checkpoint_every": 1000, "health_every": 1000, "optimizer": {"name": "adamw", "lr": 1e-2}}
    options = {"symmetric": True, "dims": [64, 16]}
    data = {"path": str(path), "validation": 0.0}
    model = nearfar.train(data, method="pairs", out=tmp_path / "run", options=options, **given)
    unseen = pairs[112:]
    small = nearfar.load(tmp_path / "run", dim=16)
    assert recall(model, unseen) > 0.4 and recall(small, unseen) > 0.3  # chance is 1 of 32
    texts = [a for a, _ in unseen]
    assert small.num_features == 16 and torch.equal(small.encode(texts), model.encode(texts)[:, :16])
    run, lines, out = str(tmp_path / "run"), tmp_path / "lines.txt", tmp_path / "x.npz"
    lines.write_text("\n".join(texts))
    assert main(["embed", run, str(lines), "-o", str(out), "--dim", "16"]) == 0
    assert Embeddings(out).dim == 16
    assert main(["search", run, str(out), "--text", texts[3], "-k", "1"]) == 0
    assert texts[3] in capsys.readouterr().out
    with pytest.raises(ValueError, match=facts("dim 65 64")):
        nearfar.load(tmp_path / "run", dim=65)
    with pytest.raises(ValueError, match=facts("--options.dims --embedding whitened plain")):
        nearfar.train(data, method="pairs", out=tmp_path / "x", options=options, embedding="whitened", **given)


def scored(count: int = 80) -> list[dict[str, object]]:
    """The score is how many of the three words of a sentence the other translates."""
    found, rows = translations(), []
    for n in range(count):
        (a, b), (c, _) = found[n], found[(n * 5) % 144]
        score = sum(word in a.split() for word in c.split()) - 2
        rows.append({"s1": c, "s2": b, "score": score})
    return rows


def test_scores_are_learned_from_and_watched(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", scored())
    given = configured(
        path,
        method="cosent",
        epochs=12,
        data={"path": str(path), "test": str(path), "validation": 0.2},
        optimizer={"name": "adamw", "lr": 1e-2},
    )
    run = Run(given, tmp_path / "run", resume=False, console=QUIET)
    assert run.setup.train.scores is not None and run.setup.train.partners is not None
    results = run.execute()
    logged = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert -1 <= logged[-1]["spearman"] <= 1
    reached = {row.encoder: row.value for row in results.rows if row.metric == "Spearman"}
    assert reached["trained"] > reached["untrained"] + 0.2
    assert tells((tmp_path / "run/report.html").read_text(encoding="utf-8"), "Spearman")
    words = ["evaluate", str(tmp_path / "run"), "--protocol", "similarity", "--dim", "4", "--protocols.bootstrap", "20"]
    assert main(words) == 0
    rows = json.loads((tmp_path / "run/dim-4/evaluation.json").read_text())["results"]
    cut = {row["encoder"]: row["value"] for row in rows if row["metric"] == "Spearman"}
    assert cut["trained"] != pytest.approx(reached["trained"], abs=1e-6)
    assert cut["untrained"] != pytest.approx(reached["untrained"], abs=1e-6)  # cut to the same width


def test_pairs_without_scores_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=facts("cosent score pairs")) as error:
        Run(settings_of(tmp_path, method="cosent"), tmp_path / "run", resume=False, console=QUIET)
    assert "\n" not in str(error.value)


def test_dims_are_refused_as_an_option_that_the_method_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=facts("simclr 'dims'")):
        Run(config("simclr", modality="image", options={"dims": [8]}), tmp_path / "run", resume=False, console=QUIET)


def test_pairs_on_pictures_nest_their_embeddings(tmp_path: Path) -> None:
    given = config("pairs", modality="image", epochs=1, options={"dims": [256, 8]}, embedding="plain")
    Run(given, tmp_path / "run", resume=False, console=QUIET).execute()
    encoder = nearfar.load(tmp_path / "run", dim=8)
    assert encoder.encode(torch.zeros(2, 3, 20, 20, dtype=torch.uint8)).shape == (2, 8)
    assert encoder.digest() != nearfar.load(tmp_path / "run").digest()


def test_a_guide_sees_the_pictures_and_the_captions_that_are_drawn(tmp_path: Path, train_only: None) -> None:
    text = {"encoder": "text-micro", "vocab_size": 300, "max_length": 16, "embed_dim": 16}
    of_clip: dict[str, Any] = {"modality": "image-text", "text": text, "epochs": 1, "steps": 2}
    Run(config("clip", **of_clip), tmp_path / "guide", resume=False, console=QUIET).execute()
    options = {"guide": str(tmp_path / "guide"), "guide_margin": 0.1, "dims": [16, 4]}
    run = Run(config("clip", **{**of_clip, "seed": 3}, options=options), tmp_path / "run", resume=False, console=QUIET)
    setup, index = run.setup, torch.tensor([5, 0, 7])
    samples = setup.train.fetch(index)
    assert setup.guide is not None and setup.modality.tokenizer is not None  # type: ignore[attr-defined]
    rows, guide = setup.guide.rows(samples, setup.train, index, step=4), nearfar.load(tmp_path / "guide")
    tokens = setup.modality.views(samples, setup.train, index, seed=3, step=4)[1]
    drawn = setup.modality.tokenizer.decode(tokens)  # type: ignore[attr-defined]
    torch.testing.assert_close(rows[:, 0], guide.encode(samples))
    torch.testing.assert_close(rows[:, 1], guide.encode(drawn, kind="text"))
    run.execute()
    pictures = config("pairs", modality="image", steps=2, options={**options, "dims": []}, embedding="plain")
    alone = Run(pictures, tmp_path / "pictures", resume=False, console=QUIET)  # an image tower guides images
    assert alone.setup.guide is not None
    assert alone.setup.guide.rows(samples, alone.setup.train, index, step=0).shape == (3, 1, 16)
    alone.execute()
