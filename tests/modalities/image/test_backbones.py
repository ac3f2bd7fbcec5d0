import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from nearfar.modalities.image.backbones import OWN, backbone
from tests.support.facts import facts


@pytest.mark.parametrize("name", [*OWN, "resnet18", "resnet18d", "vit_tiny_patch16_224", "mobilenetv3_small_050"])
def test_pooled_features_of_their_number(name: str) -> None:
    network = backbone(name, size=32)
    assert network.training
    assert network.eval()(torch.randn(2, 3, 32, 32)).shape == (2, network.num_features)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_torchvision_without_its_classifier(name: str) -> None:
    network = backbone(f"torchvision:{name}", size=32)
    assert network.eval()(torch.randn(2, 3, 32, 32)).shape == (2, network.num_features)


def test_a_size_that_a_backbone_cannot_take_is_told_with_one_that_it_can() -> None:
    with pytest.raises(ValueError, match=facts("'torchvision:vit_b_32' 32 pixels --image-size 224")):
        backbone("torchvision:vit_b_32", size=32)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("size", [20, 33, 64])
def test_tiny_takes_any_size_and_trains(name: str, size: int) -> None:
    network = backbone(name, size=size)
    network(torch.randn(2, 3, size, size)).square().mean().backward()
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", ["resnet18", "torchvision:resnet18", "resnet18d"])
def test_small_images_keep_their_resolution_in_a_resnets_stem(name: str) -> None:
    def resolution(size: int) -> int:
        network, seen = backbone(name, size=size), []
        network.layer1.register_forward_hook(lambda *a: seen.append(a[2].shape[-1]))
        network.eval()(torch.randn(1, 3, size, size))
        return int(seen[0])

    assert resolution(32) == 32
    assert resolution(96) == 24


def test_tiny_is_what_it_says() -> None:
    network, multiplications = backbone("tiny"), 0

    def count(module: nn.Module, _: object, y: torch.Tensor) -> None:
        nonlocal multiplications
        multiplications += y[0].numel() * module.weight[0].numel()  # type: ignore[operator, union-attr, index]

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    network.eval()(torch.randn(1, 3, 32, 32))
    assert 10e6 < multiplications < 20e6


@pytest.mark.parametrize(
    ("name", "near"),
    [("resnet19", "resnet18"), ("tinny", "tiny"), ("torchvision:resnt18", "torchvision:resnet18"), ("??", "")],
)
def test_an_unknown_name_gives_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=facts(f"'{near}")) as error:
        backbone(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_from_a_file(tmp_path: Path, suffix: str) -> None:
    torch.manual_seed(0)
    network, file = backbone("micro"), tmp_path / f"weights{suffix}"
    state = network.state_dict() | {"fc.weight": torch.zeros(2, 2)}  # a classifier's, of no use here
    save_file(state, file) if suffix == ".safetensors" else torch.save(state, file)
    loaded = backbone("micro", weights=file)
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in network.state_dict().items())


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    torch.save(backbone("micro").state_dict(), file)
    with pytest.raises(ValueError, match=facts("'tiny'")):
        backbone("tiny", weights=file)
    torch.save({}, file)
    with pytest.raises(ValueError, match=facts("more")):
        backbone("tiny", weights=file)
    with pytest.raises(FileNotFoundError, match=facts("file nowhere.pt")):
        backbone("tiny", weights=tmp_path / "nowhere.pt")
    file.write_bytes(b"not weights")
    with pytest.raises(ValueError, match=facts("weights")):
        backbone("tiny", weights=file)


def test_pretrained_tiny_does_not_exist() -> None:
    with pytest.raises(ValueError, match=facts("weights 'tiny'")):
        backbone("tiny", pretrained=True)
    with pytest.raises(ValueError, match=facts("weights")):
        backbone("resnet18", pretrained=True, weights="x.pt")


def test_methods_import_neither_timm_nor_torchvision() -> None:
    program = "import sys, nearfar.methods, nearfar.nn; print({'timm', 'torchvision'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "set()"


def test_a_failed_download_is_one_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import timm

    def offline(*_: object, **__: object) -> None:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s")
        raise OSError("no network")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(ValueError, match=facts("fetch")):
        backbone("resnet10t", pretrained=True)
    assert not caplog.records
