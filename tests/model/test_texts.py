"""Text encoders, and both towers of image and text, in the formats of other programs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig, completed
from nearfar.modalities import make_modality
from nearfar.modalities.text.tokenizer import Tokenizer
from nearfar.model.export.export import export
from nearfar.model.load import load
from nearfar.settings import build
from tests.modalities.text.test_tokenizer import TEXTS, hugging_face
from tests.nn.test_text import bert
from tests.support.facts import facts, tells
from tests.support.models import save_model

SMALL = {"encoder": "text-micro", "vocab_size": 300, "max_length": 16, "embed_dim": 16}
LONG = "a red car on a road in the rain on the road and two dogs run over it"


def of_texts(folder: Path, **settings: object) -> Path:
    """As a run on sentences leaves it, without the run."""
    given = {"data": "lines.txt", "method": "simcse", "backbone": "text-micro", "text": {**SMALL}} | settings
    return saved(folder, given)


def of_pairs(folder: Path) -> Path:
    return saved(folder, {"data": "glyphs", "method": "clip", "backbone": "micro", "text": SMALL})


def saved(folder: Path, given: dict[str, object]) -> Path:
    config: TrainConfig = build(TrainConfig, completed(given), "test")
    torch.manual_seed(0)
    modality = make_modality(config)
    encoder = modality.encoder()
    for parameter in encoder.parameters():  # away from the tiny values that networks are born with
        parameter.data += 0.05 * torch.randn_like(parameter)
    folder.mkdir()
    save_model(encoder, config, modality.card(), folder)
    if config.text.tokenizer is None:
        Tokenizer.train(TEXTS * 3, vocab_size=300, max_length=16).save(folder)
    else:
        Tokenizer.load(config.text.tokenizer).save(folder)
    return folder


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_onnx_reads_texts_of_any_number_and_length(pooling: str, tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    run = of_texts(tmp_path / "run", text={**SMALL, "pooling": pooling, "causal": pooling == "last"})
    done = export(run, "onnx", tmp_path / "out" / "x.onnx")
    assert done.difference is not None and done.difference < 1e-4
    assert done.beside == (tmp_path / "out" / "x-tokenizer.json",)
    model, tokenizer = load(run), Tokenizer.load(done.beside[0])
    session = onnxruntime.InferenceSession(str(done.path))
    for texts in (["a"], ["", LONG], [*TEXTS, "日本語 🙂", "שלום"]):
        tokens = tokenizer.encode(texts)
        (found,) = session.run(["features"], {"tokens": tokens.numpy()})
        np.testing.assert_allclose(found, model.encode(texts, kind="text").numpy(), atol=1e-4)
        padded = torch.nn.functional.pad(tokens, (0, 16 - tokens.shape[1]))
        np.testing.assert_allclose(session.run(None, {"tokens": padded.numpy()})[0], found, atol=1e-4)
    stated = {entry.key: json.loads(entry.value) for entry in onnx.load(str(done.path)).metadata_props}
    assert stated["max_length"] == 16 and stated["vocab_size"] == 300 and "image_size" not in stated


def test_torch_export_and_torchscript_read_texts(tmp_path: Path) -> None:
    run = of_texts(tmp_path / "run")
    model = load(run)
    program = torch.export.load(export(run, "torch-export").path).module()
    script = torch.jit.load(export(run, "torchscript").path)
    for texts in (["a red car"], [*TEXTS, LONG, ""]):
        tokens, wanted = model.modality.batch(texts), model.encode(texts, kind="text")
        torch.testing.assert_close(program(tokens), wanted, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(script(tokens), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["nearfar", "huggingface"])
def test_a_folder_of_a_text_encoder_loads_again(kind: str, tmp_path: Path) -> None:
    run = of_texts(tmp_path / "run")
    again = load(export(run, kind).path)
    assert torch.equal(again.encode(TEXTS), load(run).encode(TEXTS))
    if kind == "huggingface":
        page = (run / "export/huggingface/README.md").read_text(encoding="utf-8")
        assert tells(page, "text encoder") and 'encode(["a sentence"' in page and "sentence-similarity" in page
        assert json.loads((run / "export/huggingface/config.json").read_text())["vocab_size"] == 300


def test_both_towers_are_graphs(tmp_path: Path) -> None:
    import onnxruntime

    run = of_pairs(tmp_path / "run")
    model = load(run)
    images = torch.randint(0, 256, (3, 3, 40, 40), dtype=torch.uint8)
    done = export(run, "onnx")
    assert [path.name for path in (done.path, *done.beside)] == [
        "model.onnx",
        "model-texts.onnx",
        "model-tokenizer.json",
    ]
    seen, read = (onnxruntime.InferenceSession(str(path)) for path in (done.path, done.beside[0]))
    (found,) = seen.run(["features"], {"images": model.prepare(images).numpy()})
    np.testing.assert_allclose(found, model.encode(images).numpy(), atol=1e-4)
    (found,) = read.run(["features"], {"tokens": Tokenizer.load(done.beside[1]).encode(TEXTS).numpy()})
    np.testing.assert_allclose(found, model.encode(TEXTS, kind="text").numpy(), atol=1e-4)
    done = export(run, "torchscript")
    script = torch.jit.load(done.beside[0])
    torch.testing.assert_close(
        script(model.modality.batch(TEXTS, "text")), model.encode(TEXTS, kind="text"), atol=1e-5, rtol=1e-4
    )


def test_a_model_of_transformers_is_opened_by_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    source = bert(tmp_path / "bert")
    tokens = hugging_face(tmp_path / "words", ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"])
    run = of_texts(tmp_path / "run", backbone=source, text={"tokenizer": str(tokens), "max_length": 8}, seed=1)
    model = load(run)
    ids = model.modality.batch(TEXTS)
    plain = transformers.AutoModel.from_pretrained(export(run, "huggingface").path / "transformers").eval()
    states = plain(input_ids=ids, attention_mask=(ids != 0).long()).last_hidden_state
    real = (ids != 0)[:, :, None]
    torch.testing.assert_close(
        (states * real).sum(1) / real.sum(1), model.encode(TEXTS, kind="text"), atol=1e-5, rtol=1e-4
    )
    for kind in ("onnx", "torch-export"):
        assert export(run, kind).difference < 1e-4  # type: ignore[operator]


@pytest.mark.parametrize(("of", "kind"), [("texts", "timm"), ("texts", "torchvision"), ("pairs", "timm")])
def test_what_cannot_be_had_is_told_in_a_line(
    of: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = of_texts(tmp_path / "run") if of == "texts" else of_pairs(tmp_path / "run")
    assert main(["export", str(run), "--format", kind]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and tells(lines[0], "images nearfar huggingface onnx")


def test_the_command_names_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = of_texts(tmp_path / "run")
    assert main(["export", str(run), "--format", "torchscript"]) == 0
    out = capsys.readouterr().out
    assert "torchscript: " in out and "model-tokenizer.json" in out


def test_load_says_what_it_found_and_refuses_items_of_another_kind(tmp_path: Path) -> None:
    texts, pairs = nearfar.load(of_texts(tmp_path / "texts")), nearfar.load(of_pairs(tmp_path / "pairs"))
    assert (texts.modality.name, texts.reads_texts) == ("text", True)
    assert (pairs.modality.name, pairs.reads_texts) == ("image-text", True)
    with pytest.raises(ValueError, match=facts("'image' text")):
        texts.encode(TEXTS, kind="image")
    with pytest.raises(ValueError, match=facts("'smell' image text")):
        pairs.encode(TEXTS, kind="smell")
    with pytest.raises(TypeError, match=facts("str")):
        texts.encode([Path("a.png")])
