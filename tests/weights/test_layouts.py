"""Checkpoints in the layouts of other projects: the same tensors, whatever they are wrapped in."""

import copy
from argparse import Namespace
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nearfar import _torchvision  # noqa: F401, before timm and lightly
from nearfar.modalities.image.backbones import backbone
from nearfar.modalities.image.published import identify
from nearfar.modalities.sound.backbones import AudioEncoder
from nearfar.weights.files import read_content, read_tensors, stated_architecture, tensors_of
from nearfar.weights.layouts import MisfitError, fit_layout
from tests.support.facts import facts

State = dict[str, Tensor]


@cache
def resnet() -> nn.Module:
    """A ResNet-18 whose every tensor is different from a fresh one's."""
    torch.manual_seed(3)
    network = backbone("resnet18", size=224)
    for name, x in network.state_dict().items():
        if name.endswith(("running_mean", "running_var")):
            x.uniform_(0.5, 1.5)
    return network.eval()


def under(prefix: str, other: float | None = None) -> State:
    """The ResNet's tensors below a prefix; scaled, where they must be told apart."""
    return {f"{prefix}{name}": x if other is None else x * other for name, x in resnet().state_dict().items()}


def head(*names: str) -> State:
    return {name: torch.zeros(4, 4) for name in names}


LAYOUTS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "plain with a classifier": (lambda: under("") | head("fc.weight", "fc.bias"), "", "fc"),
    "DataParallel": (lambda: {"state_dict": under("module.")}, "state_dict.module.", ""),
    "torch.compile": (lambda: {"model": under("_orig_mod.")}, "model._orig_mod.", ""),
    "MoCo v1 and v2": (
        lambda: {
            "epoch": 200,
            "arch": "resnet18",
            "state_dict": under("module.encoder_k.", 2) | under("module.encoder_q.") | head("module.queue"),
            "optimizer": {"state": {0: {"momentum_buffer": torch.zeros(3)}}, "param_groups": [{"lr": 0.03}]},
        },
        "state_dict.module.encoder_q.",
        "queue",
    ),
    "MoCo v3": (
        lambda: {
            "state_dict": under("module.momentum_encoder.", 2)
            | under("module.base_encoder.")
            | head("module.base_encoder.fc.0.weight", "module.predictor.0.weight")
        },
        "state_dict.module.base_encoder.",
        "fc predictor",
    ),
    "SimSiam": (
        lambda: {
            "state_dict": under("module.encoder.") | head("module.predictor.0.weight", "module.encoder.fc.0.weight")
        },
        "state_dict.module.encoder.",
        "predictor fc",
    ),
    "BYOL": (
        lambda: under("target_encoder.net.", 2) | under("online_encoder.net.") | head("online_predictor.net.0.weight"),
        "online_encoder.net.",
        "online_predictor",
    ),
    "Barlow Twins": (
        lambda: {"epoch": 1, "model": under("module.backbone.") | head("module.projector.0.weight")},
        "model.module.backbone.",
        "projector",
    ),
    "VICReg": (lambda: {"model": under("backbone.") | head("projector.0.weight")}, "model.backbone.", "projector"),
    "SwAV": (
        lambda: under("module.") | head("module.projection_head.0.weight", "module.prototypes.weight"),
        "module.",
        "projection_head prototypes",
    ),
    "DINO": (
        lambda: {
            "student": under("module.backbone.", 2) | head("module.head.mlp.0.weight"),
            "teacher": under("backbone.") | head("head.mlp.0.weight"),
            "args": Namespace(arch="resnet18"),
        },
        "teacher.backbone.",
        "head",
    ),
    "VISSL": (
        lambda: {
            "classy_state_dict": {
                "base_model": {
                    "model": {"trunk": under("_feature_blocks."), "heads": head("0.clf.0.weight")},
                    "meta": {"num_classes": 10},
                }
            }
        },
        "classy_state_dict.base_model.model.trunk._feature_blocks.",
        "heads",
    ),
    "solo-learn": (
        lambda: {
            "state_dict": under("momentum_backbone.", 2)
            | under("backbone.")
            | head("projector.0.weight", "classifier.weight"),
            "hyper_parameters": {"method": "byol"},
        },
        "state_dict.backbone.",
        "projector classifier",
    ),
    "timm with an average": (
        lambda: {"arch": "resnet18", "state_dict": under("", 2), "state_dict_ema": under("")},
        "state_dict_ema.",
        "",
    ),
    "SimCLR, converted": (lambda: {"state_dict": under("") | head("fc.weight")}, "state_dict.", "fc"),
    "an nn.Sequential, as lightly's tutorials have it": (
        lambda: {
            "state_dict": {
                f"backbone.{name}": x for name, x in nn.Sequential(*list(resnet().children())[:-1]).state_dict().items()
            }
        },
        "state_dict.backbone.",
        "",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_networks_own_tensors_are_found(layout: str) -> None:
    make, prefix, left = LAYOUTS[layout]
    found = fit_layout(tensors_of(make()), backbone("resnet18", size=224))
    assert found.prefix == prefix
    assert set(left.split()) <= set(found.left_out) and "conv1" not in found.left_out
    own = resnet().state_dict()
    assert found.tensors.keys() == own.keys()
    assert all(torch.equal(x, own[name]) for name, x in found.tensors.items())
    assert repr(prefix) in found.summary() or not prefix


def test_a_file_in_a_projects_layout_fills_a_backbone(tmp_path: Path) -> None:
    torch.save(LAYOUTS["DINO"][0](), tmp_path / "checkpoint.pth")
    network = backbone("resnet18", size=224, weights=tmp_path / "checkpoint.pth").eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(network(x), resnet()(x))
    assert "teacher.backbone." in str(network.loaded)
    assert stated_architecture({"args": Namespace(arch="vit_small")}) == "vit_small"


@pytest.mark.parametrize("size", [32, 224])
def test_the_file_decides_on_the_stem(size: int, tmp_path: Path) -> None:
    for published in (True, False):
        source = backbone("resnet18", size=size, published_stem=published).eval()
        torch.save(source.state_dict(), tmp_path / "weights.pt")
        network = backbone("resnet18", size=size, weights=tmp_path / "weights.pt").eval()
        x = torch.randn(2, 3, 32, 32)
        with torch.no_grad():
            torch.testing.assert_close(network(x), source(x))
        assert network.published_stem is published


def test_weights_of_torchvision_serve_timms_network_at_any_size(tmp_path: Path) -> None:
    from torchvision.models import resnet18

    source = resnet18().eval()
    torch.save(source.state_dict(), tmp_path / "resnet18.pth")
    for name in ("resnet18", "torchvision:resnet18"):
        network = backbone(name, size=32, weights=tmp_path / "resnet18.pth").eval()
        x = torch.randn(2, 3, 32, 32)
        with torch.no_grad():
            torch.testing.assert_close(source.fc(network(x)), source(x))


@pytest.mark.parametrize("name", ["convnext_atto", "torchvision:mobilenet_v3_small", "regnetx_002"])
def test_a_classifier_beside_layers_that_stay_is_left_out(name: str) -> None:
    """Of `head.fc` and `classifier.3`, the first part alone does not tell that they are of classes."""
    if name.startswith("torchvision:"):
        from torchvision.models import get_model

        source = get_model(name.removeprefix("torchvision:"))
    else:
        import timm

        source = timm.create_model(name)
    network = backbone(name, size=64)
    found = fit_layout(source.state_dict(), network)
    assert found.tensors.keys() == network.state_dict().keys()
    with pytest.raises(MisfitError, match=facts("norm.extra")):  # which the network could have had a place for
        fit_layout({**source.state_dict(), **_beside(network, "norm.extra")}, network)


def _beside(network: nn.Module, name: str) -> State:
    first = next(key.partition(".")[0] for key in network.state_dict() if "." in key)
    return {f"{first}.{name}": torch.zeros(2)}


class LightlyMoCo(nn.Module):
    """As lightly's examples build it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        from lightly.models.modules import MoCoProjectionHead
        from lightly.models.utils import deactivate_requires_grad

        self.backbone = nn.Sequential(*list(network.children())[:-1])
        self.projection_head = MoCoProjectionHead(512, 512, 128)
        self.backbone_momentum = copy.deepcopy(self.backbone)
        deactivate_requires_grad(self.backbone_momentum)


def test_lightlys_own_classes(tmp_path: Path) -> None:
    models = pytest.importorskip("lightly.models")
    from torchvision.models import resnet18

    moco = LightlyMoCo(resnet18()).eval()
    torch.save({"state_dict": moco.state_dict()}, tmp_path / "moco.ckpt")
    small = models.ResNetGenerator("resnet-18", num_classes=10).eval()
    torch.save({"state_dict": {f"resnet.{k}": x for k, x in small.state_dict().items()}}, tmp_path / "small.ckpt")
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        network = backbone("resnet18", size=64, weights=tmp_path / "moco.ckpt").eval()
        torch.testing.assert_close(network(x), moco.backbone(x).flatten(1))
        network = backbone("resnet18", size=32, weights=tmp_path / "small.ckpt").eval()
        torch.testing.assert_close(small.linear(network(x)), small(x))


def test_a_vit_of_another_size_and_of_openais_clip() -> None:
    import timm

    source = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=3)
    state = {f"teacher.backbone.{name}": x for name, x in source.state_dict().items()}
    found = fit_layout(state, backbone("vit_tiny_patch16_224", size=96))
    assert found.tensors["pos_embed"].shape == (1, 37, 192)
    assert torch.equal(found.tensors["blocks.3.mlp.fc1.weight"], state["teacher.backbone.blocks.3.mlp.fc1.weight"])


def test_open_clips_image_tower_as_timms_network() -> None:
    open_clip = pytest.importorskip("open_clip")
    tower = open_clip.model.CLIP(
        embed_dim=512,
        vision_cfg=open_clip.CLIPVisionCfg(image_size=64, layers=12, width=768, patch_size=32),
        text_cfg=open_clip.CLIPTextCfg(layers=1, width=64, heads=1),
    ).eval()
    network = backbone("vit_base_patch32_clip_224", size=64)
    found = fit_layout({f"state_dict.module.{k}": x for k, x in tower.state_dict().items()}, network)
    network.load_state_dict(found.tensors)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        h = network.eval()(x)
        torch.testing.assert_close(h @ tower.visual.proj, tower.encode_image(x), atol=1e-4, rtol=1e-4)


class AudioNTT(nn.Module):
    """BYOL-A's encoder as its paper's table has it, with its authors' names."""

    def __init__(self, n_mels: int, features: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in (1, 64, 64):
            layers += [nn.Conv2d(width, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.fc = nn.Sequential(
            nn.Linear(64 * (n_mels // 8), features), nn.ReLU(), nn.Dropout(), nn.Linear(features, features), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x).movedim(3, 1).transpose(2, 3)  # (B, T, mels, channels)
        h = self.fc(x.flatten(2))
        return h.amax(1) + h.mean(1)


def test_byol_a_gives_its_own_features() -> None:
    torch.manual_seed(0)
    source = AudioNTT(64, 512).eval()
    network = AudioEncoder(64, features=512).eval()
    found = fit_layout({f"state_dict.{name}": x for name, x in source.state_dict().items()}, network)
    network.load_state_dict(found.tensors)
    x = torch.randn(2, 1, 64, 96)
    with torch.no_grad():
        torch.testing.assert_close(network(x), source(x), atol=1e-5, rtol=1e-5)
    assert "BYOL-A" in found.summary()


def test_a_near_miss_names_the_first_tensors() -> None:
    network = backbone("resnet18", size=224)
    state = {f"module.{name}": x for name, x in backbone("resnet34", size=224).state_dict().items()}
    with pytest.raises(MisfitError, match=facts("layer1.2.conv1.weight 'module.'")):
        fit_layout(state, network)
    state = under("encoder.")
    del state["encoder.layer4.1.bn2.weight"]
    state["encoder.conv1.weight"] = torch.zeros(64, 3, 5, 5)
    with pytest.raises(MisfitError, match=facts("(64, 3, 5, 5) (64, 3, 7, 7) layer4.1.bn2.weight")):
        fit_layout(state, network)
    state = under("")
    state["bn1.weight"] = torch.full((64,), torch.nan)
    with pytest.raises(MisfitError, match=facts("bn1.weight finite")):
        fit_layout(state, network)


def test_older_files_without_counters_fit() -> None:
    state = {name: x for name, x in under("").items() if not name.endswith("num_batches_tracked")}
    assert len(fit_layout(state, backbone("resnet18", size=224)).tensors) == len(state)


def test_a_pickle_that_needs_more_is_refused_with_a_command_that_converts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    linear = nn.Linear(2, 2)
    for more, kind in (
        ({"state_dict": linear.state_dict(), "rate": Fraction(1, 3)}, "fractions"),
        (linear, "torch.nn"),
    ):
        torch.save(more, "more.pt")
        with pytest.raises(ValueError, match=facts(f"more.pt weights_only=False {kind}")) as error:
            read_tensors(Path("more.pt"))
        exec(str(error.value).split('python -c "')[1].rstrip('"'), {})
        assert torch.equal(read_tensors(Path("weights.pt"))["weight"], linear.weight)
    torch.jit.script(linear).save(tmp_path / "script.pt")
    with pytest.raises(ValueError, match=facts("script.pt TorchScript torch.jit.load")):
        read_tensors(tmp_path / "script.pt")


def test_settings_paths_and_numbers_of_numpy_may_stand_beside_weights(tmp_path: Path) -> None:
    beside = {"args": Namespace(out=Path("runs"), lr=0.1), "best": np.float64(71.2), "epoch": np.int64(3)}
    torch.save({"state_dict": {"x": torch.ones(1)}, **beside}, tmp_path / "checkpoint.pth")
    content = read_content(tmp_path / "checkpoint.pth")
    assert content["best"] == 71.2 and content["epoch"] == 3 and str(content["args"].out) == "runs"
    assert not hasattr(content["args"].out, "open")  # a name, which opens nothing
    assert list(tensors_of(content)) == ["state_dict.x"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", "git lfs pull"),
        (b"<!doctype html><html>" * 20, "again"),
    ],
)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_what_a_failed_download_left_is_told(content: bytes, told: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"weights{suffix}"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=facts(f"weights{suffix} {told}")):
        read_tensors(file)


def test_a_file_without_tensors_is_told(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "epoch": 3}, tmp_path / "none.pth")
    with pytest.raises(ValueError, match=facts("none.pth no tensors")):
        identify(tmp_path / "none.pth")
