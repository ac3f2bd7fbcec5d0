"""Foreign image-text models: the libraries' own numbers, from local files, and nothing in them runs."""

import copy
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nearfar import _torchvision  # noqa: F401, before transformers
from nearfar.evaluation.protocols.zero_shot import class_weights, zero_shot
from nearfar.model.foreign.open_clip import read_weights
from nearfar.model.foreign.towers import open_towers
from tests.support.facts import facts, tells
from tests.support.models import preparation_of

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "a", "photo", "of", "red", "cat", "dog"]
TEXTS = ["a photo of a red cat", "dog", "a cat of a dog of a cat of a dog of a cat of a dog"]


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


def save_huggingface(folder: Path, kind: str = "clip") -> Any:
    """A tiny model with drawn weights, and a tokenizer of ten words."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**small, "vocab_size": 10, "max_position_embeddings": 12, "bos_token_id": 1, "eos_token_id": 2}
    vision = {**small, "image_size": 32, "patch_size": 8}
    torch.manual_seed(0)
    if kind == "clip":
        config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=10)
        model = transformers.CLIPModel(config)
    else:
        model = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision))
    for parameter in model.parameters():  # away from the tiny values, and the zeros, that networks are born with
        torch.nn.init.normal_(parameter, std=0.2)
    model.logit_scale.data.fill_(3.0)
    model.eval().save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return model


def features(found: Any) -> Tensor:
    return found if isinstance(found, Tensor) else found.pooler_output


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_a_hugging_face_folder_gives_transformers_own_features(kind: str, tmp_path: Path) -> None:
    model = save_huggingface(tmp_path / "tiny", kind)
    towers = open_towers(f"hf:{tmp_path / 'tiny'}")
    images = torch.randint(256, (3, 3, 40, 50), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        seen = features(model.get_image_features(pixel_values=towers.prepare(images)))
    torch.testing.assert_close(towers.encode(images), seen, atol=1e-5, rtol=0)
    torch.testing.assert_close(towers(towers.prepare(images)), seen, atol=1e-5, rtol=0)
    tokens = [[1, *(WORDS.index(word) for word in text.split()), 2] for text in TEXTS]
    for row, ids in zip(towers.encode(TEXTS, kind="text"), tokens, strict=True):
        ids = ids if len(ids) <= 12 else [*ids[:11], 2]
        ids = [*ids, *[0] * (12 - len(ids))] if kind == "siglip" else ids
        with torch.no_grad():
            read = features(model.get_text_features(input_ids=torch.tensor([ids])))[0]
        torch.testing.assert_close(row, read, atol=1e-5, rtol=0)
    assert towers.logit_scale == pytest.approx(20.0855, abs=1e-3)
    assert preparation_of(towers).size == 32 and towers.num_features == seen.shape[1]
    assert preparation_of(towers).mean == pytest.approx(
        (0.4815, 0.4578, 0.4082) if kind == "clip" else (0.5,) * 3, abs=1e-4
    )


def test_it_classifies_and_is_told_apart(tmp_path: Path) -> None:
    save_huggingface(tmp_path / "tiny")
    (tmp_path / "tiny" / "preprocessor_config.json").write_text(
        '{"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 2]}'
    )
    towers = open_towers(f"hf:{tmp_path / 'tiny'}")
    assert preparation_of(towers).mean == (0.1, 0.2, 0.3) and preparation_of(towers).std == (1.0, 1.0, 2.0)
    weights = class_weights(lambda texts: towers.encode(texts, kind="text"), ["cat", "dog"], ["a photo of a {}", "{}"])
    images = torch.randint(256, (6, 3, 32, 32), dtype=torch.uint8)
    outcome = zero_shot(towers.encode(images), torch.arange(6) % 2, weights, logit_scale=towers.logit_scale, count=20)
    assert outcome.metrics["accuracy"].n == 6
    fresh = open_towers(f"hf:{tmp_path / 'tiny'}", untrained=True)
    assert fresh.digest() != towers.digest() == open_towers(f"hf:{tmp_path / 'tiny'}").digest()
    other = copy.deepcopy(towers)
    torch.nn.init.zeros_(other.backbone.network.visual_projection.weight)  # type: ignore[arg-type, union-attr]
    assert not other.encode(images).any() and towers.encode(images).all()
    with pytest.raises(TypeError, match=facts("image")):
        towers(images)
    assert torch.equal(towers.encode("cat"), towers.encode(["cat"])[0])


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def text(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def bomb(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb(folder / "exploded")))


def other_bomb(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"logit_scale": Bomb(folder / "exploded")}, folder / "pytorch_model.bin")


def weights(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        content = load_file(folder / "model.safetensors")
        change(content)
        save_file(content, folder / "model.safetensors", metadata={"format": "pt"})

    return spoil


def remote_code(folder: Path) -> None:
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(folder / 'exploded')!r})\nclass Evil: pass\n")
    for name, key in (("config.json", "AutoModel"), ("tokenizer_config.json", "AutoTokenizer")):
        content = json.loads((folder / name).read_text())
        found = ["evil.Evil", None] if key == "AutoTokenizer" else "evil.Evil"
        content |= {"auto_map": {key: found}, "tokenizer_class": "Evil"}
        (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (bomb, "CLIPModel"),
        (other_bomb, "model.safetensors weights"),
        (weights(lambda x: x.pop("visual_projection.weight")), "weights 'visual_projection.weight'"),
        (weights(lambda x: x["text_projection.weight"].fill_(torch.nan)), "not finite"),
        (weights(lambda x: x.update({"text_projection.weight": torch.zeros(3, 3)})), "CLIPModel"),
        (without("config.json"), "config.json"),
        (text("config.json", "{"), "file"),
        (text("config.json", "[" * 100_000), "file"),
        (text("config.json", '{"model_type": "bert"}'), "model_type 'bert' clip siglip"),
        (text("preprocessor_config.json", '{"image_mean": "red"}'), "three"),
        (text("preprocessor_config.json", "[]"), "list"),
        (text("tokenizer.json", "{}"), "tokenizer"),
    ],
)
def test_a_hostile_folder_is_refused_in_a_line(spoil: Callable[[Path], object], told: str, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    save_huggingface(folder)
    spoil(folder)
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        open_towers(f"hf:{folder}")
    assert tells(str(error.value), told) and "\n" not in str(error.value) and len(str(error.value)) < 500, error.value
    assert not (folder / "exploded").exists()


def test_code_that_a_folder_brings_along_is_not_run(tmp_path: Path) -> None:
    save_huggingface(tmp_path / "tiny")
    before = open_towers(f"hf:{tmp_path / 'tiny'}").encode(TEXTS, kind="text")
    remote_code(tmp_path / "tiny")
    torch.testing.assert_close(open_towers(f"hf:{tmp_path / 'tiny'}").encode(TEXTS, kind="text"), before)
    assert not (tmp_path / "tiny" / "exploded").exists()


def test_a_hostile_checkpoint_of_open_clip_is_refused_in_a_line(tmp_path: Path) -> None:
    """With or without open_clip: the file is looked at first."""
    trace = tmp_path / "exploded"
    (tmp_path / "raw.pt").write_bytes(pickle.dumps({"logit_scale": Bomb(trace)}))
    torch.save({"state_dict": {"logit_scale": Bomb(trace)}}, tmp_path / "zip.pt")
    torch.save({"state_dict": {"logit_scale": Bomb(trace)}}, tmp_path / "named.safetensors")
    torch.save([1, 2], tmp_path / "list.pt")
    for name in ("raw.pt", "zip.pt", "named.safetensors", "list.pt"):
        with pytest.raises(ValueError, match=facts("weights")) as error:
            open_towers(f"open_clip:ViT-B-32={tmp_path / name}")
        assert "\n" not in str(error.value) and not trace.exists()
    with pytest.raises(FileNotFoundError, match=facts("file")):
        open_towers(f"open_clip:ViT-B-32={tmp_path / 'none.pt'}")


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"state_dict": {"module.logit_scale": torch.ones([])}, "epoch": 3}, tmp_path / "weights.pt")
    assert list(read_weights(tmp_path / "weights.pt")) == ["logit_scale"]
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(ImportError, match=facts("open_clip_torch 'nearfar[clip]'")):
        open_towers(f"open_clip:ViT-B-32={tmp_path / 'weights.pt'}")
    for spec in ("open_clip:", "hf:", "clip:x", f"open_clip:{tmp_path}"):
        with pytest.raises((ValueError, FileNotFoundError), match="expected"):
            open_towers(spec)
    save_huggingface(tmp_path / "tiny")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=facts("'nearfar[text]'")):
        open_towers(f"hf:{tmp_path / 'tiny'}")


@pytest.mark.parametrize("shape", ["checkpoint", "folder", "OpenAI's", "published"])
def test_a_checkpoint_of_open_clip_gives_its_own_features(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_clip = pytest.importorskip("open_clip")
    config = {
        "embed_dim": 12,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8},
        "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
    }
    (tmp_path / "nearfar-tiny.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "nearfar-tiny.json")
    model = open_clip.create_model("nearfar-tiny").eval()
    if shape == "checkpoint":
        state = {f"module.{name}": x for name, x in model.state_dict().items()}
        torch.save({"epoch": 1, "state_dict": state}, tmp_path / "weights.pt")
        spec = f"open_clip:nearfar-tiny={tmp_path / 'weights.pt'}"
    elif shape != "folder":
        numbers = {"input_resolution": 32, "context_length": 16, "vocab_size": 49408}  # of OpenAI's files
        state = dict(model.state_dict()) | {name: torch.tensor(number) for name, number in numbers.items()}
        torch.save(state, tmp_path / "weights.pt")
        spec = "open_clip:nearfar-tiny" + (f"={tmp_path / 'weights.pt'}" if shape == "OpenAI's" else "/mine")
        monkeypatch.setattr(open_clip, "list_pretrained_tags_by_model", lambda name: ["other", "mine"])
        monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda name, tag: {"tag": tag})
        found = {"mine": str(tmp_path / "weights.pt")}
        monkeypatch.setattr(open_clip, "download_pretrained", lambda stated: found[stated["tag"]])
    else:
        folder = tmp_path / "folder"
        folder.mkdir()
        said = {"model_cfg": config, "preprocess_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2]}}
        (folder / "open_clip_config.json").write_text(json.dumps(said))
        save_file(dict(model.state_dict()), folder / "open_clip_model.safetensors")
        spec = f"open_clip:{folder}"
    towers = open_towers(spec)
    assert towers.reads_texts and towers.num_features == 12 and preparation_of(towers).size == 32
    assert preparation_of(towers).mean == pytest.approx(
        (0.4815, 0.4578, 0.4082) if shape != "folder" else (0.5, 0.4, 0.3), abs=1e-4
    )
    images = torch.randint(256, (3, 3, 40, 50), dtype=torch.uint8)
    with torch.no_grad():
        seen = model.encode_image(towers.prepare(images))
        read = model.encode_text(open_clip.get_tokenizer("nearfar-tiny")(TEXTS))
    torch.testing.assert_close(towers.encode(images), seen, atol=1e-5, rtol=0)
    torch.testing.assert_close(towers.encode(TEXTS, kind="text"), read, atol=1e-5, rtol=0)
    assert towers.logit_scale == pytest.approx(1 / 0.07, rel=1e-5)
    assert open_towers(spec, untrained=True).digest() != towers.digest()
    cut = {name: x for name, x in model.state_dict().items() if name != "text_projection"}
    torch.save(cut, tmp_path / "cut.pt")
    with pytest.raises(ValueError, match=facts("'nearfar-tiny' 'text_projection'")):
        open_towers(f"open_clip:nearfar-tiny={tmp_path / 'cut.pt'}")
    with pytest.raises(ValueError, match=facts("open_clip 'no-such'")) as error:
        open_towers(f"open_clip:no-such={tmp_path / 'cut.pt'}")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
