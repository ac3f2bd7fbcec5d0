"""Encoders of other libraries, by the one way to name them: their own numbers, in every command."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import nearfar
from nearfar import _torchvision  # noqa: F401, before transformers
from nearfar.cli import main
from nearfar.config import TrainConfig, completed
from nearfar.modalities import make_modality
from nearfar.modalities.image.backbones import backbone
from nearfar.model.export.export import export
from nearfar.settings import build
from tests.modalities.text.test_tokenizer import TEXTS, hugging_face
from tests.nn.test_text import bert
from tests.support.facts import facts, tells
from tests.support.models import preparation_of, save_untrained_of


def text_folder(folder: Path, pooling: str | None = None) -> Path:
    """A tiny BERT with its tokenizer, as sentence-transformers writes it."""
    hugging_face(folder, ["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
    bert(folder)
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        stated = {"word_embedding_dimension": 16, f"pooling_mode_{pooling}": True, "pooling_mode_max_tokens": False}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(stated))
        rows = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Normalize")]
        (folder / "modules.json").write_text(json.dumps(rows))
    return folder


def image_folder(folder: Path, kind: str = "vit") -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    shape = {"image_size": 32, "patch_size": 8} | small
    if kind == "resnet":
        shape = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **shape)).eval()
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text('{"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.5, 0.5]}')
    return model


@pytest.mark.parametrize(("pooling", "normalized"), [(None, False), ("cls_token", True), ("mean_tokens", True)])
def test_a_text_model_is_used_as_it_was_published(pooling: str | None, normalized: bool, tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "bert", pooling)
    encoder = nearfar.load(f"hf:{folder}")
    tokens = encoder.modality.batch(TEXTS)
    with torch.no_grad():
        states = encoder.backbone.model(input_ids=tokens, attention_mask=(tokens != 0).long()).last_hidden_state
    real = (tokens != 0)[..., None]
    wanted = states[:, 0] if pooling == "cls_token" else (states * real).sum(1) / real.sum(1)
    wanted = nn.functional.normalize(wanted, dim=1) if normalized else wanted
    torch.testing.assert_close(encoder.encode(TEXTS), wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(nearfar.load(folder).encode(TEXTS), encoder.encode(TEXTS))  # without hf:, too
    fresh = nearfar.load(f"hf:{folder}", untrained=True)
    assert not torch.equal(fresh.encode(TEXTS), encoder.encode(TEXTS))


def test_a_pooling_that_is_not_known_is_refused(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "bert", "weightedmean_tokens")
    with pytest.raises(ValueError, match=facts("weightedmean_tokens mean cls last")):
        nearfar.load(f"hf:{folder}")


def test_a_text_model_is_embedded_searched_evaluated_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = f"hf:{text_folder(tmp_path / 'bert', 'mean_tokens')}"
    rows = [f"{text},{n % 2}" for n, text in enumerate(["a red car", "two dogs run", "on the road", "in the rain"] * 8)]
    Path("lines.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    assert main(["embed", spec, "lines.csv", "-o", "lines.parquet"]) == 0
    assert main(["search", spec, "lines.parquet", "--text", "a red car"]) == 0
    assert "a red car" in capsys.readouterr().out
    assert main(["evaluate", spec, "--data", "lines.csv", "--protocol", "knn"]) == 0
    found = {
        row["encoder"] for row in json.loads(next(Path("evaluations").glob("*/evaluation.json")).read_text())["results"]
    }
    assert {"hf:bert", "untrained", "raw"} <= found
    (tmp_path / "bert" / "card.json").unlink(missing_ok=True)
    again = nearfar.load(export(spec, "nearfar", tmp_path / "exported").path)
    assert torch.equal(again.encode(TEXTS), nearfar.load(spec).encode(TEXTS))


@pytest.mark.parametrize("kind", ["vit", "resnet", "dinov2"])
def test_an_image_model_gives_transformers_own_features(kind: str, tmp_path: Path) -> None:
    model = image_folder(tmp_path / "model", kind)
    encoder = nearfar.load(f"hf:{tmp_path / 'model'}", image_size=32)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        output = model(pixel_values=x)
        wanted = output.last_hidden_state[:, 0] if kind == "vit" else output.pooler_output.flatten(1)
        torch.testing.assert_close(encoder(x), wanted, atol=1e-5, rtol=1e-5)
    assert preparation_of(encoder).mean == (0.1, 0.2, 0.3)
    again = nearfar.load(export(f"hf:{tmp_path / 'model'}", "nearfar", tmp_path / "exported").path)
    images = torch.randint(256, (2, 3, 40, 40), dtype=torch.uint8)
    assert torch.equal(again.encode(images), nearfar.load(f"hf:{tmp_path / 'model'}").encode(images))


def test_a_model_of_waves_gives_transformers_own_features(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.Wav2Vec2Config(
        **small,
        conv_dim=(8, 8),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    model = transformers.Wav2Vec2Model(config).eval()
    model.save_pretrained(tmp_path / "wave")
    encoder = nearfar.load(f"hf:{tmp_path / 'wave'}")
    wave = torch.randn(4000) * 0.1
    prepared = encoder.prepare(encoder.modality.batch([wave.numpy()]))[:, 0]
    with torch.no_grad():
        scaled = (prepared - prepared.mean()) / (prepared.var(correction=0) + 1e-7).sqrt()
        wanted = model(input_values=scaled).last_hidden_state.mean(1)
    torch.testing.assert_close(encoder.encode([wave.numpy()]), wanted, atol=1e-4, rtol=1e-4)
    assert encoder.has_frames and encoder.modality.config.sound.sample_rate == 16_000
    assert nearfar.load(export(f"hf:{tmp_path / 'wave'}", "nearfar", tmp_path / "out").path).num_features == 16


def test_a_file_is_recognized_by_its_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = backbone("resnet18", size=224).eval()
    state = {f"module.encoder_q.{name}": x for name, x in source.state_dict().items()}
    torch.save({"arch": "resnet18", "state_dict": state | {"module.queue": torch.zeros(2)}}, tmp_path / "moco.pth.tar")
    encoder = nearfar.load(tmp_path / "moco.pth.tar", image_size=64)
    assert encoder.card["backbone"] == "resnet18"
    assert tells(capsys.readouterr().err, "resnet18 moco.pth.tar 'state_dict.module.encoder_q.' queue")
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(encoder(x), source(x))
    torch.save({"nothing": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=facts("other.pt timm:")):
        nearfar.load(tmp_path / "other.pt")


def test_a_near_miss_names_the_nearest_network_and_what_differs(tmp_path: Path) -> None:
    state = backbone("resnet18", size=224).state_dict()
    torch.save(state | {"layer3.0.conv1.weight": torch.zeros(256, 64, 3, 3)}, tmp_path / "near.pt")
    said = facts("near.pt resnet18 layer3.0.conv1.weight (256, 64, 3, 3) (256, 128, 3, 3)")
    with pytest.raises(ValueError, match=said):
        nearfar.load(tmp_path / "near.pt")
    with pytest.raises(ValueError, match=said):  # not that it differs from the backbone that a run has without weights
        started("image", tmp_path, str(tmp_path / "near.pt"))


def test_a_safetensors_file_and_a_small_stem_open_by_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = backbone("resnet18", size=32, published_stem=False).eval()
    save_file(source.state_dict(), tmp_path / "model.safetensors")
    encoder = nearfar.load(tmp_path / "model.safetensors")
    assert encoder.card["image_size"] == 32 and tells(capsys.readouterr().err, "model.safetensors resnet18 32 pixels")
    assert nearfar.load(tmp_path / "model.safetensors", image_size=48).card["image_size"] == 48
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(encoder(x), source(x))


def test_a_query_is_read_at_the_size_that_was_embedded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an encoder whose size can be chosen, and whose embeddings depend on it."""
    torch.save(backbone("vit_tiny_patch16_224", size=32).state_dict(), tmp_path / "vit.pt")
    (tmp_path / "photos").mkdir()
    for number in range(3):
        made = torch.randint(0, 256, (40, 40, 3), generator=torch.Generator().manual_seed(number))
        Image.fromarray(made.numpy().astype("uint8")).save(tmp_path / "photos" / f"{number}.png")
    weights, photos, out = f"timm:vit_tiny_patch16_224={tmp_path / 'vit.pt'}", tmp_path / "photos", tmp_path / "x.npz"
    assert main(["embed", weights, str(photos), "-o", str(out), "--image-size", "32", "--size", "40"]) == 0
    capsys.readouterr()
    sheet = ["-o", str(tmp_path / "sheet.png")]
    assert main(["search", weights, str(out), "--image", str(photos / "1.png"), "-k", "1", *sheet]) == 0
    said = capsys.readouterr().out
    assert tells(said, "1.png 1.0000")
    graph = export(weights, "onnx", tmp_path / "x.onnx", image_size=32).path
    assert nearfar.load(graph).card["image_size"] == 32


def test_a_file_of_a_models_folder_names_the_folder_and_what_is_not_read_is_said(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "bert", pooling="mean_tokens")
    with pytest.raises(ValueError, match=facts(f"model.safetensors hf:{folder}")):
        nearfar.load(folder / "model.safetensors")
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    with pytest.raises(ValueError, match=facts(f"model.safetensors text-tiny hf:{folder}")):
        make_modality(started("text", tmp_path, str(folder / "model.safetensors"), backbone="text-tiny")).encoder()
    rows = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*rows, {"type": "models.Dense", "path": "2_Dense"}]))
    network = make_modality(started("text", tmp_path, f"hf:{folder}", method="simcse")).encoder()
    assert tells(str(network.loaded), "2_Dense")


def started(kind: str, folder: Path, weights: str, **settings: object) -> TrainConfig:
    """The settings of a run that begins from weights."""
    data = {"image": "glyphs:40", "series": "waves:40", "sound": "melodies:10", "text": "lines.txt"}[kind]
    config: TrainConfig = build(TrainConfig, completed({"data": data, "weights": weights} | settings), "test")
    return config


@pytest.mark.parametrize("kind", ["image", "sound", "series", "text"])
def test_a_run_begins_with_the_weights_of_another_run(kind: str, tmp_path: Path) -> None:
    run = save_untrained_of(kind, tmp_path)
    before = nearfar.load(run).backbone.state_dict()
    method = {"method": "simcse"} if kind == "text" else {}
    config = started(kind, tmp_path, str(run), **method)
    assert config.backbone == json.loads((run / "card.json").read_text())["backbone"]
    network = make_modality(config).encoder()
    for name, x in network.state_dict().items():  # of texts, without rows of tokens that the tokenizer does not have
        assert torch.equal(x, before[name][: len(x)] if x.ndim else before[name]), name
    assert "model.safetensors" in str(network.loaded)
    drawn = make_modality(config).encoder(untrained=True).state_dict()
    assert any(not torch.equal(x, before[name][: len(x)]) for name, x in drawn.items() if x.ndim > 1)


@pytest.mark.parametrize("name", ["resnet18", "resnet18d"])  # the tensors of the second do not tell its stem
def test_a_run_of_small_images_hands_on_its_small_stem(name: str, tmp_path: Path) -> None:
    from tests.support.untrained import untrained_run

    run = untrained_run(tmp_path / "run", backbone=name)
    before, x = nearfar.load(run), torch.randn(2, 3, 32, 32)
    network = make_modality(started("image", tmp_path, str(run), image_size=96)).encoder().eval()
    with torch.no_grad():
        torch.testing.assert_close(network(x), before(x))
    assert network.published_stem is False


def test_each_tower_has_weights_of_its_own(tmp_path: Path) -> None:
    images, texts = tmp_path / "images", text_folder(tmp_path / "bert")
    images.mkdir()
    run = save_untrained_of("image", images)
    given = {"data": "glyphs:40", "method": "clip", "weights": str(run), "text": {"weights": f"hf:{texts}"}}
    config: TrainConfig = build(TrainConfig, completed(given), "test")
    assert config.backbone == "micro" and config.text.encoder == f"transformers:{texts}"
    towers = make_modality(config).encoder()
    first, second = nearfar.load(run).backbone, nearfar.load(f"hf:{texts}").backbone
    assert torch.equal(towers.first.encoder.stem.weight, first.stem.weight)
    assert torch.equal(towers.second.encoder.token_embedding.weight, second.token_embedding.weight)
    both: TrainConfig = build(
        TrainConfig,
        completed(
            {
                "data": "glyphs:40",
                "method": "clip",
                "backbone": "micro",
                "pretrained": True,
                "text": {"encoder": f"transformers:{texts}", "max_length": 16},
            }
        ),
        "test",
    )
    towers = make_modality(both).encoder()  # `pretrained` is for the tower that has published weights
    assert torch.equal(towers.second.encoder.token_embedding.weight, second.token_embedding.weight)


def test_the_start_of_a_run_is_what_it_is_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(9)
    source = backbone("resnet18", size=32, published_stem=True)
    for x in source.state_dict().values():
        if x.is_floating_point():
            x.mul_(1.1)
    torch.save({"state_dict": source.state_dict()}, "start.pth")
    flags = ["--weights", "start.pth", "--steps", "2", "--batch-size", "16", "--embedding", "plain"]
    assert main(["train", "--data", "glyphs:120", "--backbone", "resnet18", *flags, "--out", "run"]) == 0
    assert tells(capsys.readouterr().out, "start.pth 'state_dict.'")
    start = nearfar.load("run", untrained=True)
    assert torch.equal(start.backbone.conv1.weight, source.conv1.weight)
    assert torch.equal(start.backbone.bn1.running_var, source.bn1.running_var)
    assert start.card["start"] == str(tmp_path / "start.pth")
    rows = json.loads(Path("run/evaluation.json").read_text())["results"]
    assert {"trained", "untrained", "raw"} <= {row["encoder"] for row in rows}
    Path("start.pth").unlink()
    assert nearfar.load("run").backbone.conv1.kernel_size == (7, 7)
    assert main(["evaluate", "run", "--protocol", "knn"]) == 0
    assert "start.pth" in capsys.readouterr().err


def test_the_explorer_embeds_the_data_of_an_encoder_without_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nearfar.explore.open_run import open_run

    monkeypatch.chdir(tmp_path)
    torch.save(backbone("micro").state_dict(), "micro.pt")
    with pytest.raises(ValueError, match=facts("timm:micro=micro.pt --data --embeddings")):
        open_run("timm:micro=micro.pt", nearfar.load)
    run = open_run("timm:micro=micro.pt", nearfar.load, data="glyphs:30", progress=False)
    assert run.space is not None and len(run.space) > 0
    assert run.space.file.path.parts[0] == "embeddings"


@pytest.mark.parametrize("stated", [{"num_hidden_layers": 10**6}, {"vocab_size": 10**9}, {"hidden_size": 200_000}])
def test_a_folder_that_states_a_network_larger_than_its_weights(stated: dict[str, int], tmp_path: Path) -> None:
    """A million layers took minutes and gigabytes before a line was said."""
    content = json.loads((text_folder(tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**content, **stated}))
    for untrained in (False, True):
        with pytest.raises(ValueError, match=facts("numbers weights")):
            nearfar.load(f"hf:{tmp_path}", untrained=untrained)
