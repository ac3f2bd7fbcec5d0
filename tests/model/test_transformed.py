"""Embeddings that are transformed: stored with the model, and in everything that is made of it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import nearfar
from nearfar.cli import main
from nearfar.config import TrainConfig
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.card import make_card
from nearfar.model.export.export import export
from nearfar.model.load import load
from nearfar.model.save import TRANSFORM, write_model
from nearfar.nn.whitening import KINDS, EmbeddingTransform, TransformKind, fit_transform
from nearfar.search.embed import embed
from nearfar.search.files import Embeddings
from nearfar.search.query import encode_query
from tests.search.pictures import folder_of
from tests.support.facts import facts, tells
from tests.support.models import save_untrained_of

CHANGED = KINDS[1:]


def images(batch: int, side: int = 32) -> torch.Tensor:
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(batch))


def transform_of(width: int, kind: TransformKind) -> EmbeddingTransform:
    h = torch.randn(3 * width, width, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 2, width) + 1
    found = fit_transform(h, kind)
    assert found is not None
    return found


def run_with(folder: Path, kind: TransformKind = "whitened", *, name: str = "micro", side: int = 32) -> Path:
    torch.manual_seed(0)
    network = backbone(name, size=side)
    transform = transform_of(network.num_features, kind)  # type: ignore[arg-type]
    config = TrainConfig(backbone=name, image_size=side, data="pictures")
    card = make_card(config, Preparation(side).card(), embedding={"kind": kind, "setting": "auto"})
    write_model(network.state_dict(), card, folder, transform)
    return folder


@pytest.mark.parametrize("kind", CHANGED)
def test_a_folder_loads_to_the_same_bits(kind: TransformKind, tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", kind)
    encoder = load(run)
    assert encoder.transform is not None and encoder.transform.kind == kind
    wanted = transform_of(encoder.num_features, kind)
    assert all(torch.equal(x, wanted.state_dict()[name]) for name, x in encoder.transform.state_dict().items())
    again = load(export(run, "nearfar", tmp_path / "out").path)
    assert torch.equal(again(images(2)), encoder(images(2))) and again.digest() == encoder.digest()
    assert json.loads((tmp_path / "out" / "card.json").read_text())["embedding"]["kind"] == kind


def test_encode_gives_the_embedding_and_on_request_the_features(tmp_path: Path) -> None:
    encoder = load(run_with(tmp_path / "run"))
    samples = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    raw, h = encoder.encode(samples, raw=True), encoder.encode(samples)
    with torch.no_grad():
        x = encoder.prepare(samples)
        assert torch.equal(raw, encoder.features(x)) and torch.equal(raw, encoder.backbone(x))
        assert encoder.transform is not None and torch.equal(h, encoder.transform(raw)) and torch.equal(h, encoder(x))
    assert not torch.allclose(raw, h)
    plain = encoder.without_transform()
    assert plain.digest() != encoder.digest() and torch.equal(plain.encode(samples), raw)
    assert plain.without_transform() is plain


@pytest.mark.parametrize("kind", CHANGED)
def test_graphs_have_it(kind: TransformKind, tmp_path: Path) -> None:
    import onnxruntime

    run = run_with(tmp_path / "run", kind)
    wanted = load(run)(images(4)).detach()
    program = torch.export.load(export(run, "torch-export", tmp_path / "x.pt2").path).module()
    torch.testing.assert_close(program(images(4)), wanted, atol=1e-4, rtol=1e-4)
    script = torch.jit.load(export(run, "torchscript", tmp_path / "x.ts").path)
    torch.testing.assert_close(script(images(4)), wanted, atol=1e-4, rtol=1e-4)
    path = export(run, "onnx", tmp_path / "x.onnx").path
    (found,) = onnxruntime.InferenceSession(str(path)).run(["features"], {"images": images(4).numpy()})
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(load(path)(images(4)), wanted, atol=1e-4, rtol=1e-3)


def test_graphs_of_texts_have_it(tmp_path: Path) -> None:
    run = save_untrained_of("text", tmp_path)
    card, weights = json.loads((run / "card.json").read_text()), load_file(run / "model.safetensors")
    width = nearfar.load(run).num_features
    write_model(weights, card | {"embedding": {"kind": "whitened"}}, run, transform_of(width, "whitened"))
    encoder = nearfar.load(run)
    tokens = encoder.modality.batch(["a dog runs", "the cat"])
    script = torch.jit.load(export(run, "torchscript", tmp_path / "x.ts").path)
    torch.testing.assert_close(script(tokens), encoder.encode(["a dog runs", "the cat"]), atol=1e-4, rtol=1e-4)


def test_plain_weights_of_timm_give_the_features_and_a_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nearfar import _torchvision  # noqa: F401, before timm

    import timm  # isort: skip

    run = run_with(tmp_path / "run", name="resnet10t", side=96)
    assert main(["export", str(run), "--format", "timm", "-o", str(tmp_path / "x.safetensors")]) == 0
    assert tells(capsys.readouterr().out, "whitened raw=True onnx")
    plain = timm.create_model("resnet10t", num_classes=0).eval()
    plain.load_state_dict(load_file(tmp_path / "x.safetensors"))
    torch.testing.assert_close(plain(images(2, 96)), load(run).features(images(2, 96)))
    export(run, "huggingface", tmp_path / "hub")  # timm opens it, and nearfar with the transform
    opened = timm.create_model(f"local-dir:{tmp_path / 'hub'}", pretrained=True, num_classes=0).eval()
    torch.testing.assert_close(opened(images(2, 96)), plain(images(2, 96)))
    assert torch.equal(load(tmp_path / "hub")(images(2, 96)), load(run)(images(2, 96)))
    assert tells((tmp_path / "hub" / "README.md").read_text(), "whitened")


def test_embedded_files_and_queries_have_it(tmp_path: Path) -> None:
    pictures = folder_of(tmp_path / "pictures", 6)
    encoder = load(run_with(tmp_path / "run"))
    embed(encoder, pictures, tmp_path / "x.npz", progress=False)
    file = Embeddings(tmp_path / "x.npz")
    (_, rows), *_ = file.pieces()
    names = [pictures / name for name in file.names()]
    torch.testing.assert_close(torch.as_tensor(rows).float(), encoder.encode(names), atol=1e-4, rtol=1e-3)
    query = encode_query(encoder, file, names[2], "image")
    torch.testing.assert_close(query, torch.as_tensor(rows[2:3]).float(), atol=1e-4, rtol=1e-3)
    with pytest.raises(ValueError, match=facts("another encoder")):
        encode_query(encoder.without_transform(), file, names[2], "image")


def test_a_plain_model_leaves_no_old_transform_behind(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run")
    card = json.loads((run / "card.json").read_text()) | {"embedding": {"kind": "plain"}}
    write_model(load_file(run / "model.safetensors"), card, run)
    assert not (run / TRANSFORM).exists() and load(run).transform is None
    del card["embedding"]  # as cards were before
    write_model(load_file(run / "model.safetensors"), card, run)
    assert load(run).transform is None


def test_what_is_missing_or_broken_is_refused_in_a_line(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run")
    whole = load_file(run / TRANSFORM)
    for broken, words in (
        ({"weight": whole["weight"]}, "mean"),
        ({"mean": whole["mean"], "weight": whole["weight"][:2]}, "weight"),
        ({"mean": whole["mean"][:2], "weight": whole["weight"][:2, :2].contiguous()}, "2 features"),
        (whole | {"mean": whole["mean"] * float("nan")}, "finite"),
    ):
        save_file(broken, run / TRANSFORM)
        with pytest.raises(ValueError, match=facts(f"{TRANSFORM} {words}")):
            load(run)
    (run / TRANSFORM).unlink()
    with pytest.raises(FileNotFoundError, match=facts(f"{TRANSFORM} whitened")):
        load(run)
    card = json.loads((run / "card.json").read_text())
    for stated in ("magic", {"kind": ["whitened"]}, 3, {}):
        (run / "card.json").write_text(json.dumps(card | {"embedding": stated}))
        with pytest.raises(ValueError, match=facts("card.json embedding")):
            load(run)
