"""Exports that sentence-transformers, AutoModel and AutoTokenizer open give the encoder's own embeddings."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nearfar import _torchvision  # noqa: F401, before transformers
from nearfar.cli import main
from nearfar.modalities.text.start import start_settings, unread_modules
from nearfar.model.export.export import export
from nearfar.model.load import load
from nearfar.model.save import write_model
from nearfar.nn.whitening import fit_transform
from nearfar.weights.names import parse_name
from nearfar.weights.packages import is_installed, package_path
from tests.modalities.text.test_tokenizer import TEXTS, hugging_face
from tests.model.test_export import run_of
from tests.model.test_texts import LONG, of_texts
from tests.nn.test_text import bert
from tests.support.facts import facts, tells

SENTENCES = [*TEXTS, LONG, "", "[SEP] is text", "日本語 🙂"]


def of_bert(tmp_path: Path, *, kind: str = "bert", **text: object) -> Path:
    """A run with a tiny model of transformers and a tokenizer of Hugging Face's."""
    padding = 0 if kind == "bert" else 1
    names = (
        ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
        if kind == "bert"
        else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    )
    source = bert(tmp_path / "source", kind=kind, padding=padding)
    tokens = hugging_face(tmp_path / "words", names)
    return of_texts(tmp_path / "run", backbone=source, text={"tokenizer": str(tokens), "max_length": 8, **text})


def whitened(run: Path, kind: Any = "whitened") -> None:
    """Give a run a transform of its embeddings."""
    encoder = load(run)
    width = encoder.num_features
    transform = fit_transform(torch.randn(200, width) @ torch.randn(width, width) + 3, kind)
    write_model(encoder.backbone.state_dict(), {**encoder.card, "embedding": {"kind": kind}}, run, transform)


def same_in_sentence_transformers(folder: Path, wanted: torch.Tensor) -> None:
    package = pytest.importorskip("sentence_transformers")
    found = package.SentenceTransformer(str(folder), device="cpu").encode(SENTENCES, convert_to_numpy=True)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "text", "transform"),
    [
        ("bert", {}, None),
        ("bert", {"pooling": "cls", "normalize": True}, None),
        ("roberta", {"pooling": "last"}, "centered"),
        ("roberta", {"head": True}, "standardized"),
        ("bert", {"head": True, "normalize": True}, "whitened"),
    ],
)
def test_a_model_of_transformers_is_the_same_in_every_library(
    kind: str, text: dict[str, object], transform: str | None, tmp_path: Path
) -> None:
    from transformers import AutoModel, AutoTokenizer

    run = of_bert(tmp_path, kind=kind, **text)
    if transform is not None:
        whitened(run, transform)
    done = export(run, "huggingface")
    encoder = load(run)
    wanted = encoder.encode(SENTENCES)
    assert done.note is None and torch.equal(load(done.path).encode(SENTENCES), wanted)
    same_in_sentence_transformers(done.path, wanted)
    same_in_sentence_transformers(done.path / "transformers", wanted)
    tokenizer = AutoTokenizer.from_pretrained(done.path / "transformers")
    model = AutoModel.from_pretrained(done.path / "transformers").eval()
    given = tokenizer(SENTENCES, padding=True, truncation=True, return_tensors="pt")
    assert given["input_ids"].shape[1] == 8  # the length that the encoder was trained with
    states = model(**given).last_hidden_state
    above = AutoTokenizer.from_pretrained(done.path)(SENTENCES, padding=True, truncation=True, return_tensors="pt")
    assert torch.equal(above["input_ids"], given["input_ids"])
    with pytest.raises(ValueError, match=r"model_type|Unrecognized"):  # an error, not a network of random weights
        AutoModel.from_pretrained(done.path)
    if not text:
        real = given["attention_mask"][:, :, None]
        torch.testing.assert_close((states * real).sum(1) / real.sum(1), wanted, rtol=1e-4, atol=1e-5)
    page = (done.path / "README.md").read_text(encoding="utf-8")
    assert "SentenceTransformer(" in page


def test_a_head_of_sentence_transformers_is_read(tmp_path: Path) -> None:
    run = of_bert(tmp_path, head=True, normalize=True)
    folder = export(run, "huggingface").path / "transformers"
    found = load(f"hf:{folder}")
    torch.testing.assert_close(found.encode(SENTENCES), load(run).encode(SENTENCES))
    same_in_sentence_transformers(folder, found.encode(SENTENCES))
    assert start_settings(parse_name(f"hf:{folder}"))["head"] is True and unread_modules(str(folder)) == []
    stated = folder / "2_Dense" / "config.json"
    stated.write_text(stated.read_text().replace("activation.Tanh", "linear.Identity"))
    assert "head" not in start_settings(parse_name(f"hf:{folder}")) and unread_modules(str(folder)) == ["2_Dense"]


@pytest.mark.skipif(not is_installed("minilm"), reason="needs the extra weights")
def test_minilm_goes_out_as_it_came_in(tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    wanted = package.SentenceTransformer(str(package_path("minilm")), device="cpu").encode(SENTENCES[:-3])
    done = export("package:minilm", "huggingface", tmp_path / "minilm")
    found = package.SentenceTransformer(str(done.path), device="cpu").encode(SENTENCES[:-3])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(load("package:minilm").encode(SENTENCES[:-3]).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_it_opens_where_nearfar_is_not(tmp_path: Path) -> None:
    """In another process that cannot import the package."""
    pytest.importorskip("sentence_transformers")
    run = of_bert(tmp_path, normalize=True)
    whitened(run)
    folder = export(run, "huggingface").path
    program = f"""
import json, sys
sys.modules["torchvision"] = sys.modules["nearfar"] = None  # not there, or not of this torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer
texts = json.loads(sys.stdin.read())
tokenizer = AutoTokenizer.from_pretrained({str(folder / "transformers")!r})
states = AutoModel.from_pretrained({str(folder / "transformers")!r}).eval()(
    **tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).last_hidden_state
model = SentenceTransformer({str(folder)!r}, device="cpu")
print(json.dumps([model.encode(texts).tolist(), states.shape[-1]]))
"""
    run_it = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(SENTENCES), capture_output=True, text=True, cwd=tmp_path
    )
    assert run_it.returncode == 0, run_it.stderr[-2000:]
    found, width = json.loads(run_it.stdout.splitlines()[-1])
    encoder = load(run)
    assert width == encoder.num_features
    np.testing.assert_allclose(np.array(found), encoder.encode(SENTENCES).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("transform", [None, "whitened"])
def test_a_bag_of_tokens_is_a_static_embedding(head: bool, transform: str | None, tmp_path: Path) -> None:
    run = of_texts(tmp_path / "run", backbone="text-bag", text={"vocab_size": 300, "max_length": 16, "head": head})
    if transform is not None:
        whitened(run, transform)
    done = export(run, "huggingface")
    assert done.note is None
    same_in_sentence_transformers(done.path, load(run).encode(SENTENCES))
    same_in_sentence_transformers(done.path / "static-embedding", load(run).encode(SENTENCES))


def test_a_bag_with_a_given_tokenizer_leaves_out_its_special_tokens(tmp_path: Path) -> None:
    tokens = hugging_face(tmp_path / "words", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])  # whose padding is not 0
    run = of_texts(tmp_path / "run", backbone="text-bag", text={"tokenizer": str(tokens), "max_length": 8})
    texts = [text for text in SENTENCES if "[" not in text]
    package = pytest.importorskip("sentence_transformers")
    found = package.SentenceTransformer(str(export(run, "huggingface").path), device="cpu").encode(texts)
    np.testing.assert_allclose(found, load(run).encode(texts).numpy(), rtol=1e-4, atol=1e-5)


def test_what_no_other_library_opens_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = of_texts(tmp_path / "texts")
    assert main(["export", str(run), "--format", "huggingface"]) == 0
    assert tells(capsys.readouterr().out, "note sentence-transformers TextEncoder nearfar.load onnx")
    assert not (run / "export/huggingface/modules.json").exists()
    small, large = run_of("resnet10t", 32, tmp_path / "small"), run_of("resnet10t", 96, tmp_path / "large")
    done = export(small, "huggingface")
    assert done.note is not None and tells(done.note, "timm AutoModel resnet10t stem nearfar.load")
    assert tells((done.path / "README.md").read_text(encoding="utf-8"), "timm AutoModel stem")
    import timm

    with pytest.raises((RuntimeError, ValueError), match=r"(?i)unknown model|invalid|nearfar"):
        timm.create_model(f"local-dir:{done.path}", pretrained=True, num_classes=0)
    assert export(large, "huggingface").note is None
    with pytest.raises(ValueError, match=facts("stem")):
        export(small, "timm")


def test_another_tokenizer_beside_the_weights_stops_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearfar.modalities.text.tokenizer import Tokenizer

    run = of_bert(tmp_path)
    monkeypatch.setattr(Tokenizer, "settings", lambda self: {"tokenizer_class": "BertTokenizer"})
    original = Tokenizer.save

    def elsewhere(self: Tokenizer, folder: str | Path, name: str = "tokenizer.json") -> Path:
        return original(self, Path(folder) / "lost" if Path(folder).name == "transformers" else folder, name)

    monkeypatch.setattr(Tokenizer, "save", elsewhere)
    with pytest.raises(Exception, match=r"(?i)token|vocab"):  # as it was before: every word unknown
        export(run, "huggingface")
