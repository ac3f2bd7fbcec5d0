"""The recipe "paper": every method's settings build, come under what was asked for, and are the authors'."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from nearfar import _torchvision  # noqa: F401, before timm
from nearfar.config import TrainConfig, build, completed
from nearfar.methods import BYOL, BYOLA, METHODS, BarlowTwins, MoCoV3, SimCLR, SimCSE, SimSiam, SupCon
from nearfar.methods.toy import toy_text_encoder
from nearfar.modalities import make_modality
from nearfar.modalities.image.modality import ImageModality
from nearfar.modalities.text.data import TextDataset
from nearfar.modalities.text.modality import TextModality, make_text_encoder
from nearfar.nn.text import TextEncoder
from nearfar.nn.vit import fix_patches_and_positions, sincos_positions
from nearfar.training.build_method import check_options
from nearfar.training.optimizers import make_optimizer, rate_factor
from tests.support.facts import tells


def paper_config(method: str, **settings: Any) -> TrainConfig:
    given = {"data": "somewhere", "method": method, "recipe": "paper", **settings}
    config: TrainConfig = build(TrainConfig, completed(given), "train")
    return config


WITHOUT_RECIPE = {"pairs", "cosent"}  # losses that their papers use in systems of their own


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_settings_of_its_paper_that_build(name: str) -> None:
    config = paper_config(name)
    assert config.recipe == "paper" and bool(METHODS[name].paper) == (name not in WITHOUT_RECIPE)
    check_options(METHODS[name], config)
    assert not {"epochs", "batch_size"} & set(METHODS[name].paper)  # those are the user's
    method = METHODS[name].toy()[0]
    make_optimizer(method, config.optimizer, config.batch_size)
    assert all(math.isfinite(rate_factor(step, 20, config.optimizer, config.epochs)) for step in range(20))


@pytest.mark.parametrize("name", METHODS)
def test_a_tiny_instance_trains_with_the_options_of_its_paper(name: str) -> None:
    kind = METHODS[name]
    options = {**paper_config(name).options, **kind.toy_options}
    method, batches = kind.toy()
    method = kind(method.encoder, features=16, samples=64, **options).double().train()
    optimizer = torch.optim.SGD(method.parameter_groups(0.0), lr=0.01)
    for n in range(3):
        optimizer.zero_grad()
        loss = method(batches[n % 2]).loss
        loss.backward()
        optimizer.step()
        method.after_step((n + 1) / 3)
        assert math.isfinite(loss.item()) and any(p.grad is not None for p in method.encoder.parameters())


BICUBIC = {"simclr", "simclr_v2", "byol", "barlow_twins", "vicreg", "clip"}


@pytest.mark.parametrize(
    "name", [name for name, kind in METHODS.items() if kind.modalities[0] in ("image", "image-text")]
)
def test_views_are_resized_as_by_the_authors(name: str) -> None:
    modality = make_modality(paper_config(name, data="photos.csv"))
    assert isinstance(modality, ImageModality)
    assert {view.interpolation for view in modality.recipes} == {"bicubic" if name in BICUBIC else "bilinear"}
    least = {view.crop_scale[0] for view in modality.recipes}
    if name in ("dino", "swav"):  # large crops and small ones
        assert least == {"dino": {0.4, 0.05}, "swav": {0.14, 0.05}}[name]
        return
    from_a_fifth = {
        "moco",
        "moco_v1",
        "moco_v3",
        "simsiam",
        "supcon",
        "instdisc",
        "invaspread",
        "densecl",
        "pirl",
        "cmc",
    }
    assert least == ({0.2} if name in from_a_fifth else {0.08} if METHODS[name].modalities[0] == "image" else {0.9})


def test_what_is_asked_for_comes_first() -> None:
    config = paper_config("byol", optimizer={"lr": 0.5}, options={"hidden": 64})
    assert config.optimizer.lr == 0.5 and config.optimizer.name == "lars" and config.optimizer.weight_decay == 1.5e-6
    assert config.options == {"last_bias": False, "hidden": 64}
    other = paper_config("byol", optimizer={"name": "sgd"}).optimizer
    assert other.lr is None and other.lr_in_momentum  # the rate of LARS stays with LARS


def test_the_settings_of_built_in_data_give_way_to_the_paper() -> None:
    config: TrainConfig = build(TrainConfig, completed({"recipe": "paper"}), "train")
    assert config.options["temperature"] == 0.1 and config.optimizer.name == "lars"
    assert config.backbone == "strokes"  # what is no part of the method
    pairs = completed({"method": "clip", "recipe": "paper"})["text"]
    assert pairs["encoder"] == "text-micro" and pairs["causal"] and pairs["max_length"] == 77


def test_the_default_recipe_is_as_before() -> None:
    assert completed({"data": "photos/", "recipe": "default"}) == {
        **completed({"data": "photos/"}),
        "recipe": "default",
    }


class NoPaper(SimCLR):
    """A method from outside, without settings of a paper."""

    paper, paper_views = {}, {}


class OwnPaper(SimCLR):
    """A method from outside that declares some."""

    paper, paper_views = {"optimizer": {"name": "lars", "lr": 0.5}}, {}


def test_a_method_from_outside_has_its_own_paper_or_says_that_it_has_none() -> None:
    asked = {"data": "glyphs:50", "recipe": "paper"}
    (note,) = completed({**asked, "method": f"{__name__}:NoPaper"})["notes"]
    assert tells(note, "recipe paper NoPaper no settings defaults")
    own = completed({**asked, "method": f"{__name__}:OwnPaper"})
    assert "notes" not in own and own["optimizer"] == {"name": "lars", "lr": 0.5}
    assert "notes" not in completed({"data": "glyphs:50", "method": f"{__name__}:NoPaper"})


def test_moco_v3_tells_resnets_from_vits() -> None:
    resnet, vit = (
        paper_config("moco_v3", backbone="resnet50"),
        paper_config("moco_v3", backbone="vit_small_patch16_224"),
    )
    assert resnet.options["temperature"] == 1.0 and resnet.optimizer.name == "lars"
    assert vit.options == {"fixed_patches": True} and vit.optimizer.name == "adamw" and vit.optimizer.decay_all
    other = paper_config("moco_v3", backbone="torchvision:vit_b_16")
    assert (other.options, other.optimizer) == (vit.options, vit.optimizer)
    pretrained = paper_config("moco_v3", backbone="vit_small_patch16_224", pretrained=True)
    assert pretrained.options == {}


def test_clip_tells_resnets_from_vits() -> None:
    resnet, vit = (
        paper_config("clip", backbone=name).optimizer for name in ("resnet50", "vit_base_patch32_clip_quickgelu_224")
    )
    assert (vit.beta2, vit.eps, resnet.beta2, resnet.eps) == (0.98, 1e-6, 0.999, 1e-8)
    assert (vit.lr, vit.weight_decay) == (resnet.lr, resnet.weight_decay) == (5e-4, 0.2)


@pytest.mark.parametrize("name", ["siglip", "lit"])
def test_big_visions_decay_is_not_multiplied_by_the_rate(name: str) -> None:
    config = paper_config(name).optimizer
    assert config.lr and config.weight_decay and math.isclose(config.lr * config.weight_decay, 1e-4)
    assert config.clip_norm == 1.0 and config.warmup_ratio == 0.03


def layers_of(head: nn.Module) -> list[tuple[Any, ...]]:
    """Each linear layer as ("linear", has a bias), each batch-norm as ("norm", learns a scale, learns a shift)."""
    found: list[tuple[Any, ...]] = []
    for part in head.modules():
        if isinstance(part, nn.Linear):
            found.append(("linear", part.bias is not None))
        elif isinstance(part, nn.BatchNorm1d):
            found.append(("norm", part.weight is not None, part.bias is not None and part.bias.requires_grad))
    return found


def test_heads_are_the_authors() -> None:
    encoder = nn.Linear(3, 4)
    plain, affine, bare = ("linear", False), ("norm", True, True), ("norm", False, False)
    moco = MoCoV3(encoder, features=4, dim=5, hidden=8, **paper_config("moco_v3").options)
    assert layers_of(moco.projector) == [plain, affine, plain, bare]
    assert layers_of(moco.predictor) == [plain, affine, plain]
    vit = MoCoV3(encoder, features=4, dim=5, hidden=8)
    assert layers_of(vit.projector) == [plain, affine, plain, affine, plain, bare]
    assert layers_of(vit.predictor) == [plain, affine, plain, bare]
    byol = BYOL(encoder, features=4, dim=5, hidden=8, **paper_config("byol").options)
    assert layers_of(byol.projector) == layers_of(byol.predictor) == [plain, affine, plain]
    simclr = SimCLR(encoder, features=4, dim=5, **paper_config("simclr").options)
    assert layers_of(simclr.projector) == [plain, affine, plain, ("norm", True, False)]
    simsiam = SimSiam(encoder, features=4, dim=8, **paper_config("simsiam").options)
    assert [p.out_features for p in simsiam.projector if isinstance(p, nn.Linear)] == [4, 4, 8]
    assert layers_of(simsiam.predictor) == [plain, affine, ("linear", True)]


def test_simsiams_predictor_keeps_its_rate_and_everything_decays() -> None:
    config = paper_config("simsiam").optimizer
    method = SimSiam(nn.Linear(3, 4), features=4, dim=8, constant_predictor_lr=True)
    groups = make_optimizer(method, config, 512).param_groups
    constant = {p for group in groups if group.get("constant_lr") for p in group["params"]}
    assert constant == set(method.predictor.parameters())
    assert {p for group in groups for p in group["params"]} == set(method.parameters())
    assert {(group["lr"], group["weight_decay"]) for group in groups} == {(0.1, 1e-4)}


def test_barlow_twins_biases_have_a_rate_of_their_own() -> None:
    config = paper_config("barlow_twins")
    method = BarlowTwins(nn.Linear(3, 4), features=4, dim=8, hidden=8, **config.options)
    weights, biases = make_optimizer(method, config.optimizer, 2048).param_groups
    assert weights["lr"] == pytest.approx(0.2 * 8) and biases["lr"] == pytest.approx(0.0048 * 8)


def test_losses_are_weighted_as_by_the_authors() -> None:
    assert SimCLR(nn.Linear(3, 4), features=4).loss_weight == 1.0
    assert SimCLR(nn.Linear(3, 4), features=4, **paper_config("simclr").options).loss_weight == 2.0
    supcon = SupCon(nn.Linear(3, 4), features=4, **paper_config("supcon").options)
    assert supcon.loss_weight == pytest.approx(0.1 / 0.07) and SupCon(nn.Linear(3, 4), features=4).loss_weight == 1.0


def test_byol_as_momentum_is_constant() -> None:
    method = BYOLA(nn.Linear(3, 4), features=4, dim=5, hidden=8, **paper_config("byol_a").options)
    for progress in (0.1, 0.5, 1.0):
        method.after_step(progress)
        assert float(method.target_momentum) == pytest.approx(0.99)


def test_an_encoder_with_a_head_of_its_own_gets_no_other() -> None:
    """Supervised SimCSE keeps linear layer and tanh at test time."""
    torch.manual_seed(0)
    encoder = TextEncoder(40, 8, width=16, layers=1, heads=2, pooling="cls", head=True)
    method = SimCSE(encoder, features=16)
    assert isinstance(method.projector, nn.Identity)
    assert isinstance(SimCSE(toy_text_encoder(), features=16).projector, nn.Sequential)
    tokens = torch.randint(4, 40, (3, 8))
    linear = encoder.head[0]
    expected = torch.tanh(encoder.states(tokens)[:, 0] @ linear.weight.T + linear.bias)
    torch.testing.assert_close(encoder(tokens), expected)


@pytest.mark.parametrize(("partners", "kept"), [(["x y", "z"], True), (None, False)])
def test_the_papers_simcse_keeps_its_head_for_pairs(partners: list[str] | None, kept: bool) -> None:
    modality = make_modality(paper_config("simcse", data="lines.txt"))
    assert isinstance(modality, TextModality)
    assert modality.fit(TextDataset(["a b", "c d"], partners=partners)).text.head is kept
    assert modality.config.text.pooling == "cls"


def test_clips_text_tower_is_the_original() -> None:
    config = paper_config("clip", data="pairs.csv")
    tower = make_text_encoder(config, "text-micro", untrained=True, dropout=0.0)
    assert tower.pooling == "last" and tower.transformer.blocks[0].attention.causal
    x = torch.randn(5)
    torch.testing.assert_close(tower.transformer.blocks[0].mlp[1](x), x / (1 + torch.exp(-1.702 * x)))
    tokens = torch.randint(4, 200, (2, 8))
    changed = tokens.clone()
    changed[:, -1] = 3  # a later token changes no earlier state
    torch.testing.assert_close(tower.states(tokens)[:, :-1], tower.states(changed)[:, :-1])
    assert make_modality(config).preparation.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))


def test_sincos_positions_equal_the_formula() -> None:
    found = sincos_positions(3, 5, 8)
    for patch in range(15):
        row, column = divmod(patch, 5)
        for i in range(2):
            omega = 1 / 10_000 ** (i / 2)
            expected = [
                math.sin(row * omega),
                math.cos(row * omega),
                math.sin(column * omega),
                math.cos(column * omega),
            ]
            assert found[patch, [i, 2 + i, 4 + i, 6 + i]].tolist() == pytest.approx(expected, abs=1e-6)


def test_a_vits_patches_and_positions_are_fixed() -> None:
    timm = pytest.importorskip("timm")
    encoder = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=1, embed_dim=16, num_heads=2, num_classes=0
    )
    method = MoCoV3(encoder, features=16, dim=8, hidden=16, fixed_patches=True)
    frozen = {name for name, p in method.encoder.named_parameters() if not p.requires_grad}
    assert frozen == {"pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"}
    torch.testing.assert_close(encoder.pos_embed[0, 1:], sincos_positions(4, 4, 16))
    assert bool((encoder.pos_embed[0, 0] == 0).all()) and bool((encoder.patch_embed.proj.bias == 0).all())
    bound = math.sqrt(6 / (3 * 64 + 16))
    assert 0.9 * bound < float(encoder.patch_embed.proj.weight.abs().max()) <= bound
    with pytest.raises(ValueError, match="Vision Transformer"):
        fix_patches_and_positions(nn.Linear(2, 2))


def test_patches_and_positions_of_torchvisions_vits_are_fixed() -> None:
    from torchvision.models import VisionTransformer

    encoder = VisionTransformer(32, 8, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=16)
    fix_patches_and_positions(encoder)
    frozen = {name for name, p in encoder.named_parameters() if not p.requires_grad}
    assert frozen == {"encoder.pos_embedding", "conv_proj.weight", "conv_proj.bias"}
    torch.testing.assert_close(encoder.encoder.pos_embedding[0, 1:], sincos_positions(4, 4, 16))
