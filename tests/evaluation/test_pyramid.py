"""A feature pyramid stands on any encoder that makes maps, and on nothing else."""

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from nearfar.evaluation.detection.pyramid import Pyramid
from nearfar.modalities.image.backbones import backbone
from nearfar.nn.maps import stages
from tests.support.facts import facts


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("micro", 32, [(4, 64), (8, 128), (16, 256)]),
        ("tiny", 32, [(4, 64), (8, 128), (16, 256)]),
        ("tiny-wide", 32, [(4, 128), (8, 256), (16, 512)]),
        ("strokes", 32, [(4, 64), (8, 256)]),
        ("resnet18", 224, [(4, 64), (8, 128), (16, 256), (32, 512)]),
        ("resnet18", 32, [(4, 256), (8, 512)]),  # its stem keeps the resolution
        ("torchvision:resnet18", 96, [(4, 64), (8, 128), (16, 256), (32, 512)]),
        ("torchvision:mobilenet_v3_small", 96, [(4, 16), (8, 24), (16, 48), (32, 576)]),
        ("convnext_atto", 96, [(4, 40), (8, 80), (16, 160), (32, 320)]),
    ],
)
def test_the_last_map_of_each_stride_is_found(name: str, size: int, expected: list[tuple[int, int]]) -> None:
    assert [(stage.stride, stage.channels) for stage in stages(backbone(name, size=size))] == expected


def test_resnets_maps_are_those_of_its_four_stages() -> None:
    for name in ("resnet18", "resnet26", "torchvision:resnet50"):  # basic blocks, bottlenecks
        assert [stage.module for stage in stages(backbone(name, size=224))] == [f"layer{i}" for i in (1, 2, 3, 4)]


def test_the_network_may_be_inside_another() -> None:
    inside = nn.Sequential(OrderedDict(backbone=backbone("resnet18", size=96)))
    assert [stage.module for stage in stages(inside)] == [f"backbone.layer{i}" for i in (1, 2, 3, 4)]


def test_timms_own_features_are_the_same_maps() -> None:
    import timm

    network = backbone("resnet18", size=224).eval()
    twin = timm.create_model("resnet18", features_only=True, out_indices=(1, 2, 3, 4)).eval()
    twin.load_state_dict(network.state_dict(), strict=True)
    kept: dict[str, Tensor] = {}
    for stage in stages(network):
        network.get_submodule(stage.module).register_forward_hook(
            lambda module, inputs, output, name=stage.module: kept.__setitem__(name, output)
        )
    x = torch.randn(1, 3, 64, 96)
    with torch.no_grad():
        network(x)
        for ours, theirs in zip(kept.values(), twin(x), strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("name", "finest", "largest", "strides"),
    [
        ("micro", 4, 96, [4, 8, 16]),
        ("micro", 8, 256, [8, 16, 32]),  # the last is made
        ("strokes", 4, 96, [4, 8, 16]),
        ("tiny", 4, 32, [4]),
        ("resnet18", 8, 512, [8, 16, 32, 64]),
    ],
)
def test_levels_have_their_strides(name: str, finest: int, largest: int, strides: list[int]) -> None:
    pyramid = Pyramid(backbone(name, size=96), finest=finest, largest=largest).eval()
    assert pyramid.strides == strides
    with torch.no_grad():
        levels = list(pyramid(torch.zeros(2, 3, 64, 128)).values())
    wanted = [(2, pyramid.out_channels, 64 // stride, 128 // stride) for stride in strides]
    assert [tuple(level.shape) for level in levels] == wanted
    assert pyramid.out_channels == (128 if name == "resnet18" else 64)


def test_gradients_reach_the_encoder_unless_it_is_frozen() -> None:
    for frozen in (False, True):
        encoder = backbone("micro")
        pyramid = Pyramid(encoder, finest=4, largest=64, frozen=frozen).train()
        before = {name: x.clone() for name, x in encoder.state_dict().items()}
        sum(level.square().mean() for level in pyramid(torch.randn(2, 3, 64, 64)).values()).backward()
        assert any(p.grad is not None for p in encoder.parameters()) is not frozen
        assert all(torch.equal(before[name], x) for name, x in encoder.state_dict().items()) is frozen
        assert encoder.training is not frozen and pyramid.fpn.training


def test_a_network_without_maps_is_refused_and_left_as_it_was() -> None:
    vit = backbone("vit_tiny_patch16_224", size=224)
    vit.train()
    with pytest.raises(ValueError, match=facts("128 192")):
        stages(vit)
    assert vit.training and not any(m._forward_hooks for m in vit.modules())
    with pytest.raises(ValueError, match=facts("(B, C, H, W) 4 8 16 32")):
        stages(nn.Sequential(nn.Flatten()))
