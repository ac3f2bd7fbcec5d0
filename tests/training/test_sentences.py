"""Sentences with partners and hard negatives, masked words with a given tokenizer, and an honest validation."""

import csv
import itertools
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig, completed
from nearfar.data.fingerprint import fingerprint
from nearfar.losses.reference import cosine
from nearfar.methods import Batch
from nearfar.modalities.text.data import TextDataset
from nearfar.modalities.text.modality import TextModality
from nearfar.model.encoder import Encoder
from nearfar.settings import build
from nearfar.training.build_method import build_method
from nearfar.training.online_evaluation import OnlineEvaluation
from nearfar.training.run import Run
from tests.modalities.text.test_tokenizer import hugging_face
from tests.support.facts import facts, tells
from tests.training.runs import QUIET

SMALL = {"encoder": "text-micro", "vocab_size": 400, "max_length": 16}


def table(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def configured(path: Path, **settings: object) -> TrainConfig:
    given = {"data": str(path), "method": "simcse", "backbone": "text-micro", "epochs": 2, "batch_size": 16}
    config: TrainConfig = build(TrainConfig, completed({**given, "text": SMALL, **settings}), "test")
    return config


TRIPLES: list[dict[str, object]] = [
    {"text": "a man sleeps", "positive": "someone rests", "negative": "a man runs"},
    {"text": "A  man sleeps", "positive": "a person naps", "negative": "nobody sleeps"},  # the first sentence again
    {"text": "a dog barks", "positive": "an animal is loud", "negative": "someone rests"},  # the first's positive
    {"text": "two cats play", "positive": "an animal is loud", "negative": "two cats sleep"},  # the third's positive
    {"text": "it rains", "positive": "the street is wet", "negative": "a dog barks"},  # the third's sentence
    {"text": "the street is wet", "positive": "it is slippery", "negative": "it is dry"},  # the fifth's positive
]


@pytest.mark.parametrize("hard", [True, False])
def test_a_table_gives_the_papers_supervised_objective(hard: bool, tmp_path: Path) -> None:
    """From the table to the loss, against loops over its texts: who says the same is nobody's negative."""
    rows = TRIPLES if hard else [{k: v for k, v in row.items() if k != "negative"} for row in TRIPLES]
    config = configured(table(tmp_path / "t.csv", rows), text={**SMALL, "dropout": 0.0})
    texts = TextModality(config)
    data = texts.open(config.data.path)
    texts.fit(data)
    assert isinstance(data, TextDataset) and texts.tokenizer is not None
    index = torch.arange(len(data))
    method = build_method(config, len(data)).double().eval()
    views = texts.views(data.fetch(index), data, index, seed=0, step=0)
    assert len(views) == (3 if hard else 2) and all(texts.tokenizer.decode(v) for v in views)
    step = method(Batch(views, index, texts.ids(data)))

    def z(text: object) -> Tensor:
        assert texts.tokenizer is not None
        return method.projector(method.encoder(texts.tokenizer.encode([" ".join(str(text).split())])))[0]

    same = [{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4, 5}, {4, 5}]  # by a sentence or a positive that they share
    expected = []
    for i, row in enumerate(rows):
        found = [z(row["positive"]), *(z(rows[j]["positive"]) for j in range(6) if j not in same[i])]
        if hard:
            own = [str(rows[j][key]) for j in same[i] for key in ("text", "positive")]
            found += [z(other["negative"]) for other in rows if other["negative"] not in own]
        scores = [cosine(z(row["text"]), other) / 0.05 for other in found]
        expected.append(torch.stack(scores).logsumexp(0) - scores[0])
    torch.testing.assert_close(step.loss, torch.stack(expected).mean(), rtol=1e-8, atol=1e-8)


NOUNS = {"cat": "miro", "dog": "valo", "bird": "tiku", "fish": "sepa", "horse": "hoku", "cow": "lumu"}
VERBS = {"sleeps": "ola", "runs": "reva", "sings": "singa", "eats": "popa", "hides": "kota", "jumps": "jipa"}
PLACES = {"home": "dena", "school": "fara", "river": "mula", "garden": "gora"}


def translations() -> list[tuple[str, str]]:
    """Sentences of two languages that share no word."""
    found = itertools.product(NOUNS, VERBS, PLACES)
    return [(f"the {n} {v} at {p}", f"{PLACES[p]} {NOUNS[n]} {VERBS[v]}") for n, v, p in found]  # 144


def recall(model: Encoder, pairs: list[tuple[str, str]]) -> float:
    first, second = (F.normalize(model.encode(list(side))) for side in zip(*pairs, strict=True))
    return float(((first @ second.T).argmax(1) == torch.arange(len(pairs))).float().mean())


def test_partners_teach_what_no_dropout_could(tmp_path: Path) -> None:
    pairs = [translations()[i] for i in torch.randperm(144, generator=torch.Generator().manual_seed(0)).tolist()]
    rows: list[dict[str, object]] = [{"anchor": a, "positive": b} for a, b in pairs[:112]]
    given = {"method": "simcse", "backbone": "text-micro", "epochs": 30, "batch_size": 16}
    given |= {"checkpoint_every": 1000, "health_every": 1000}
    given |= {"text": SMALL, "optimizer": {"name": "adamw", "lr": 2e-2}}
    model = nearfar.train(
        {"path": str(table(tmp_path / "t.csv", rows)), "validation": 0.0}, out=tmp_path / "run", **given
    )
    unseen = pairs[112:]
    assert recall(model, unseen) > 0.4  # chance is 1 of 32
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(text for pair in pairs[:112] for text in pair), encoding="utf-8")
    alone = nearfar.train({"path": plain, "validation": 0.0}, out=tmp_path / "alone", **(given | {"epochs": 4}))
    assert recall(alone, unseen) < 0.2


def test_a_supervised_run_watches_resumes_and_knows_its_data(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"anchor": a, "positive": b, "negative": f"{a} {number}"} for number, (a, b) in enumerate(translations()[:90])
    ]
    config = configured(table(tmp_path / "t.csv", rows))
    run = Run(config, tmp_path / "run", resume=False, console=QUIET)
    run.execute()
    logged = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert logged[-1]["ceiling"] == pytest.approx(torch.tensor(32.0).log().item())  # positives and hard negatives
    before = fingerprint(run.setup.train)
    rows[40]["negative"] = "something else"
    table(tmp_path / "t.csv", rows)
    assert fingerprint(Run(config, tmp_path / "run2", resume=False, console=QUIET).setup.train) != before


def test_scored_pairs_are_trained_on_as_sentences(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"s1": a, "s2": b, "score": n % 6} for n, (a, b) in enumerate(translations()[:40])]
    texts = TextModality(configured(table(tmp_path / "t.csv", rows)))
    data = texts.for_training(texts.open(texts.config.data.path))
    texts.fit(data)
    assert isinstance(data, TextDataset) and len(data) == 80 and data.partners is None
    index = torch.arange(4)
    first, second = texts.views(data.fetch(index), data, index, seed=0, step=0)
    assert first is second
    assert tells(texts.show(data, tmp_path), "dropout")
    ids = texts.ids(data)
    assert torch.equal(ids[:40], ids[40:]) and len(ids.unique()) == 40


def test_pairs_with_a_high_score_are_positives_and_the_test_keeps_its_scores(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"s1": a, "s2": b, "score": n % 6} for n, (a, b) in enumerate(translations()[:60])]
    file = table(tmp_path / "t.csv", rows)
    given = {"path": str(file), "test": str(file), "positive_score": 4, "validation": 0}
    texts = TextModality(configured(file, method="pairs", data=given))
    splits = texts.split()
    assert isinstance(splits.train, TextDataset) and splits.train.paired
    assert list(splits.train.texts) == [str(row["s1"]) for row in rows if int(str(row["score"])) >= 4]
    assert splits.test is not None and splits.test.scores is not None and len(splits.test) == 60
    for wrong, said in ((6, "positive_score 6 5"), (5.5, "positive_score 5.5")):
        with pytest.raises(ValueError, match=facts(said)):
            TextModality(configured(file, method="pairs", data={**given, "positive_score": wrong})).split()
    plain = table(tmp_path / "plain.csv", [{"anchor": "a", "positive": "b"}, {"anchor": "c", "positive": "d"}])
    with pytest.raises(ValueError, match=facts("positive_score 4")):
        TextModality(configured(plain, method="pairs", data={"path": str(plain), "positive_score": 4})).split()


def test_scored_pairs_are_what_a_run_is_measured_by(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"s1": a, "s2": f"{b} {a[: n // 2]}", "score": n % 6} for n, (a, b) in enumerate(translations()[:60])
    ]
    file = table(tmp_path / "t.csv", rows)
    config = configured(file, data={"path": str(file), "test": str(file)}, epochs=1)
    results = Run(config, tmp_path / "run", resume=False, console=QUIET).execute()
    assert results is not None
    assert {(row.encoder, row.protocol) for row in results.rows} == {
        (encoder, "similarity") for encoder in ("trained", "untrained", "raw")
    }


def test_masked_words_take_the_tokens_of_a_given_tokenizer(tmp_path: Path) -> None:
    """The padding of RoBERTa is not 0: its ids are exchanged, and so are those that masking must know."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    folder = hugging_face(tmp_path / "roberta", names)
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(f"a red car on a road {number}" for number in range(60)))
    config = configured(lines, text={**SMALL, "tokenizer": str(folder)}, options={"warmup": 0.5, "mlm": 0.1})
    method = build_method(config, 60)
    assert method.mask_token == 4 and method.special_tokens == (0, 1, 2, 3, 4)
    assert build_method(configured(lines, options={"mlm": 0.1}), 60).mask_token == 3  # our own
    run = Run(config, tmp_path / "run", resume=False, console=QUIET)
    run.execute()
    logged = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert logged[0]["word_perplexity"] > 1 and "perplexity" not in logged[0]  # the warm-up contrasts nothing
    assert logged[-1]["perplexity"] == pytest.approx(torch.tensor(logged[-1]["info_nce"]).exp().item(), rel=1e-4)
    assert tells((tmp_path / "run/report.html").read_text(encoding="utf-8"), "Perplexity")


def test_a_tokenizer_without_a_mask_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hugging_face(tmp_path / "words", ["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
    (tmp_path / "lines.txt").write_text("\n".join(f"a red car {number}" for number in range(60)))
    words = ["train", "--data", "lines.txt", "--method", "simcse", "--text.tokenizer", "words", "--out", "run"]
    assert main([*words, "--options.mlm", "0.1"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and tells(lines[0], "mask 0")
    config = configured(tmp_path / "lines.txt", text={**SMALL, "tokenizer": "words"})
    assert build_method(config, 60).masked_words is None  # without masked words it serves


def test_the_validation_of_sentences_compares_two_dropouts(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(a for a, _ in translations()))
    config = configured(lines)
    texts = TextModality(config)
    data = texts.open(config.data.path)
    texts.fit(data)
    readout, method = OnlineEvaluation(data, None, texts), build_method(config, 144)
    method.encoder.train()
    method.encoder.transformer.blocks[0].eval()  # a part that is frozen so
    seen: list[tuple[Tensor, Tensor]] = []
    original = method.embed_pair
    method.embed_pair = lambda views: seen.append(original(views)) or seen[-1]  # type: ignore[method-assign]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = readout.measure(method)["validation_loss"]
    assert torch.equal(torch.get_rng_state(), state)  # the run goes on as if nobody had looked
    assert readout.measure(method)["validation_loss"] == first  # the same dropout at every look
    z1, z2 = seen[0]
    assert not torch.equal(z1, z2) and torch.equal(z1, seen[1][0])
    z1, z2 = (F.normalize(z.double()) for z in (z1, z2))
    z, n = torch.cat([z1, z2]), len(data)
    expected = []
    for i in range(2 * n):
        scores = [z[i] @ z[j] / 0.1 for j in range(2 * n) if j != i]
        expected.append(torch.stack(scores).logsumexp(0) - z[i] @ z[(i + n) % (2 * n)] / 0.1)
    assert first == pytest.approx(float(torch.stack(expected).mean()), rel=1e-5)


def test_sentences_of_every_script_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scripts = ["שלום עולם, מה שלומך", "مرحبا بالعالم", "今日はいい天気ですね。", "👩‍👩‍👧‍👦 🇸🇪 👍🏽", "a plain one"]
    lines = [f"{scripts[number % 5]} {number}" for number in range(60)]
    Path("sentences.txt").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    words = "train --data sentences.txt --method simcse --backbone text-micro --epochs 1 --batch_size 16 --out run"
    assert main(words.split()) == 0
    model = nearfar.load("run")
    assert isinstance(model.modality, TextModality) and model.modality.tokenizer is not None
    assert model.modality.tokenizer.decode(model.modality.tokenize(lines)) == lines
    assert model.encode(scripts).shape == (5, model.num_features)
    assert Path("run/report.html").is_file()


def test_the_longest_text_of_a_batch_is_known_from_all_columns() -> None:
    lengths = {"a": 2, "b": 5, "c": 3, "d": 7}
    data = TextDataset(
        ["a", "b"],
        partners=["c", "a"],
        negatives=[("a",), ("d",)],
        tokenize=lambda texts: torch.tensor([[1] * lengths[x] + [0] * (9 - lengths[x]) for x in texts]),
    )
    assert [data.longest_text(torch.tensor(rows)) for rows in ([0], [1], [0, 1])] == [3, 7, 7]
