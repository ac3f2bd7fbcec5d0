"""Sentences and captioned images go through the same run as images: train, stop, resume, evaluate, load."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

import nearfar
from nearfar.config import TrainConfig, completed
from nearfar.data.config import DataConfig
from nearfar.modalities import make_modality
from nearfar.modalities.image.views.grid import ROWS
from nearfar.modalities.image_text.modality import ImageTextModality
from nearfar.modalities.text.config import TextConfig
from nearfar.modalities.text.modality import TextModality
from nearfar.model.export.export import export
from nearfar.settings import build
from nearfar.training.advice import advise, labels_hint
from nearfar.training.build_method import build_method
from nearfar.training.report_samples import two_views
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts, tells
from tests.support.models import fitted
from tests.training.runs import QUIET, page_of, shown, stop_after, weights

SMALL = {"encoder": "text-micro", "vocab_size": 300, "max_length": 16, "embed_dim": 16}


def sentences(path: Path, count: int = 80) -> Path:
    """Of two kinds, which share no words."""
    kinds = (("the cat", "a dog", "my horse"), ("two plus", "seven times", "nine minus"))
    ends = (("sleeps at home", "runs fast", "eats grass"), ("three is five", "one is odd", "four is even"))
    lines = ["label\ttext"]
    for number in range(count):
        kind = number % 2
        text = f"{kinds[kind][number % 3]} {ends[kind][number // 3 % 3]} {number}"
        lines.append(f"{('animals', 'sums')[kind]}\t{text}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def of_texts(data: Path | dict[str, object], **settings: object) -> TrainConfig:
    given = {"data": data, "method": "simcse", "backbone": "text-micro", "epochs": 2, "batch_size": 16}
    config: TrainConfig = build(TrainConfig, completed({**given, "text": SMALL, **settings}), "test")
    return config


def of_pairs(**settings: object) -> TrainConfig:
    given = {"data": "glyphs:160", "method": "clip", "backbone": "micro", "epochs": 2, "batch_size": 32}
    config: TrainConfig = build(TrainConfig, completed({**given, "text": SMALL, **settings}), "test")
    return config


def test_the_kind_of_data_is_that_of_the_method_or_of_the_file() -> None:
    assert isinstance(make_modality(TrainConfig(method="clip")), ImageTextModality)
    assert isinstance(make_modality(TrainConfig(data="lines.txt", backbone="text-micro")), TextModality)
    assert isinstance(make_modality(TrainConfig(method="simclr", modality="image-text")), ImageTextModality)


@pytest.mark.parametrize("kind", ["texts", "pairs"])
def test_a_stopped_run_resumes_to_the_same_weights(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    config = of_texts(sentences(tmp_path / "lines.tsv")) if kind == "texts" else of_pairs()
    whole = Run(config, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(TrainingStopped):
            Run(config, folder, resume=False, console=QUIET).execute()
    assert tells(page_of(folder), "not finished")
    resumed = Run(config, folder, resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_sentences_are_trained_on_evaluated_beside_tf_idf_and_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    results = Run(of_texts(sentences(tmp_path / "lines.tsv")), folder, resume=False, console=QUIET).execute()
    assert results is not None
    assert {row.encoder for row in results.rows} == {"trained", "untrained", "raw"}
    assert results.value("raw", "knn", "accuracy") == 1.0  # they share no words
    model = nearfar.load(folder)
    assert isinstance(model.modality, TextModality)
    h = model.encode(["the cat sleeps at home 1", "two plus three is five 2", "日本語 🙂"])
    assert h.shape == (3, model.num_features) and bool(h.isfinite().all())
    samples = shown(folder, "the cat")
    assert not samples.sheet.size and 0 < samples.positive < 1  # of two dropouts, which make the views
    assert "was not measured" not in page_of(folder)
    still = of_texts(tmp_path / "lines.tsv", text=SMALL | {"dropout": 0.0})
    modality = fitted(still)
    embedded = two_views(build_method(still, 60), modality, modality.open(still.data.path))
    assert embedded(torch.arange(4)) is None  # a text beside itself says nothing


def test_labels_are_left_out_where_that_is_asked(tmp_path: Path) -> None:
    lines = sentences(tmp_path / "lines.tsv")
    for labels in (False, None):
        built_in = ("glyphs:60", "waves:60", "melodies:8")
        several = [completed({"data": {"path": data, "labels": labels}}) for data in built_in]
        for config in (
            *(build(TrainConfig, given, "test") for given in several),
            of_texts({"path": str(lines), "labels": labels}),
        ):
            found = make_modality(config).open(config.data.path)
            assert (found.labels is None) == (found.classes is None) == (labels is False), config.data.path


def test_how_to_say_that_folders_are_classes(tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    assert tells(labels_hint(TrainConfig(data=str(tmp_path / "photos"))), "classes --data.labels true")
    assert labels_hint(TrainConfig(data=DataConfig(str(tmp_path / "photos"), labels=False))) is None
    assert labels_hint(TrainConfig(data=str(tmp_path / "photos" / "cats"))) is labels_hint(TrainConfig()) is None


def test_captioned_images_are_trained_on_evaluated_and_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    results = Run(of_pairs(), folder, resume=False, console=QUIET).execute()
    assert results is not None
    protocols = {(row.encoder, row.protocol) for row in results.rows}
    for encoder in ("trained", "untrained"):
        assert {(encoder, p) for p in ("knn", "linear", "zero_shot", "captions")} <= protocols
    assert {p for e, p in protocols if e == "raw"} == {"knn", "linear", "captions"}  # by its neighbours
    samples = shown(folder, "letter")
    assert samples.sheet.size and bool(samples.crossed) and tells(page_of(folder), "image text another")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(abs(line["temperature"] * line["logit_scale"] - 1) < 1e-5 for line in lines)
    assert "<h3>Temperature</h3>" in page_of(folder)
    told = (folder / "views.txt").read_text().splitlines()
    assert len(told) == ROWS and all(f"<li>{text}</li>" in page_of(folder) and "letter" in text for text in told)
    model = nearfar.load(folder)
    assert isinstance(model.modality, ImageTextModality) and model.reads_texts and model.logit_scale > 1
    images = torch.randint(0, 256, (2, 3, 40, 40), dtype=torch.uint8)
    assert model.encode(images).shape == model.encode(["a red letter K", "b"]).shape == (2, SMALL["embed_dim"])
    for shape in ("nearfar", "huggingface"):
        copied = nearfar.load(export(folder, shape).path)
        assert torch.equal(copied.encode(["a red letter K"]), model.encode(["a red letter K"]))


def test_equal_captions_have_equal_ids() -> None:
    pairs = ImageTextModality(of_pairs(data="glyphs:400"))
    data = pairs.open("glyphs:400")
    assert data.captions is not None
    ids, texts = pairs.ids(data), [captions[0] for captions in data.captions]
    for i in range(len(texts)):
        assert (ids == ids[i]).tolist() == [text.casefold() == texts[i].casefold() for text in texts]


def test_data_without_captions_are_refused_in_a_line(tmp_path: Path) -> None:
    from tests.training.test_run_folder import photos

    config = of_pairs(data=str(photos(tmp_path / "photos", 20)))
    with pytest.raises(ValueError, match=facts("caption")):
        Run(config, tmp_path / "run", resume=False, console=QUIET)


def test_a_caption_is_drawn_by_seed_and_step() -> None:
    pairs = ImageTextModality(replace(of_pairs(), text=TextConfig(vocab_size=300, max_length=16)))
    data = pairs.open("glyphs:60")
    pairs.fit(data)
    index = torch.arange(8)
    first, again = (pairs.views(data.fetch(index), data, index, seed=1, step=2)[1] for _ in range(2))
    assert torch.equal(first, again) and first.shape[0] == 8


def test_chains_of_captions_do_not_make_all_images_one(tmp_path: Path) -> None:
    colors, shapes = ("red", "green", "blue"), ("circle", "square", "cross")
    lines = ["path,caption"]
    for number, (color, shape) in enumerate([(c, s) for c in colors for s in shapes] * 3):
        Image.new("RGB", (8, 8), color).save(tmp_path / f"{number}.png")
        lines += [f"{number}.png,{text}" for text in (f"a {color} {shape}", f"something {color}", f"a {shape}")]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    pairs = ImageTextModality(of_pairs(data=str(tmp_path / "t.csv")))
    ids = pairs.ids(pairs.open(pairs.config.data.path))
    assert len(ids.unique()) == 9 and torch.equal(ids[:9], ids[9:18])


def test_a_model_of_transformers_reads_its_own_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    folder.mkdir()
    name = f"transformers:{folder}"
    sentences = completed({"data": "lines.txt", "method": "simcse", "backbone": name})
    assert sentences["text"]["tokenizer"] == str(folder)
    pairs = completed({"data": "pairs.csv", "method": "clip", "text": {"encoder": name, "max_length": 9}})
    assert pairs["text"] == {"encoder": name, "max_length": 9, "tokenizer": str(folder)}
    given = completed({"data": "lines.txt", "method": "simcse", "backbone": name, "text": {"tokenizer": "other"}})
    assert given["text"]["tokenizer"] == "other"
    assert (
        completed({"data": "a.txt", "method": "simcse", "text": {"encoder": "text-micro"}})["backbone"] == "text-micro"
    )


def test_too_few_negatives_are_told() -> None:
    config, method = TrainConfig(), build_method(TrainConfig(backbone="micro"), 100)
    for ids, told in ((torch.arange(100), False), (torch.arange(100) // 10, False), (torch.arange(100) // 50, True)):
        said = advise(config, method, samples=100, total=1000, ids=ids)
        assert any(verdict.name == "negatives" for verdict in said) == told
