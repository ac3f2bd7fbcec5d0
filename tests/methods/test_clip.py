"""CLIP, SigLIP and LiT: their losses as the papers define them, who is no negative, and that they learn."""

import copy
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.data.groups import caption_ids, merged_ids
from nearfar.losses.info_nce import symmetric_info_nce_reference
from nearfar.losses.sigmoid import sigmoid_pairs_reference
from nearfar.methods import CLIP, Batch, LiT, SigLIP
from nearfar.modalities.sound.backbones import audio_encoder
from nearfar.nn.text import TextEncoder
from nearfar.nn.towers import TwoTowers
from tests.losses.agreement import rows
from tests.support.facts import facts

B, D = 6, 5
IDS = torch.arange(B)
SHARED = torch.tensor([0, 1, 0, 2, 3, 3])


class Images(nn.Module):
    """(B, 3, S, S) to (B, 8)."""

    num_features = 8

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.drop(F.relu(self.norm(self.conv(x)))).mean((2, 3))
        return h


class Vectors(nn.Sequential):
    def __init__(self, width: int, features: int = 32) -> None:
        super().__init__(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, features))
        self.num_features = features


def image_text(**options: object) -> CLIP:
    torch.manual_seed(0)
    text = TextEncoder(20, 6, width=16, layers=1, heads=2)
    return CLIP(TwoTowers(Images(), text, embed_dim=D), **options)  # type: ignore[arg-type]


def make_batch(seed: int = 0, ids: Tensor = IDS) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(B, 3, 8, 8, generator=generator)
    return Batch([images, torch.randint(1, 20, (B, 6), generator=generator)], torch.arange(B), ids)


@pytest.mark.parametrize("ids", [IDS, SHARED])
@pytest.mark.parametrize("scale", [None, 1.0, 50.0])
def test_clip_equals_the_papers_loops_in_value_and_gradient(scale: float | None, ids: Tensor) -> None:
    method = image_text(logit_scale=scale).double()
    z1, z2 = (z.requires_grad_() for z in rows(2, B, D))
    log = method.logit_scale.log.detach().clone().requires_grad_()
    expected = symmetric_info_nce_reference(z1, z2, 1 / log.exp(), ids).mean()
    expected_gradients = torch.autograd.grad(expected, [z1, z2, log])
    loss = method.contrast({"z1": z1, "z2": z2, "ids": ids}).loss
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    gradients = torch.autograd.grad(loss, [z1, z2, method.logit_scale.log])
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("ids", [IDS, SHARED])
@pytest.mark.parametrize(("scale", "bias"), [(None, -10.0), (1.0, 2.0), (200.0, -3.0)])
def test_siglip_equals_the_papers_loops_in_value_and_gradient(scale: float | None, bias: float, ids: Tensor) -> None:
    method = image_text(loss="sigmoid", logit_scale=scale, logit_bias=bias).double()
    z1, z2 = (z.requires_grad_() for z in rows(2, B, D))
    log, shift = (p.detach().clone().requires_grad_() for p in (method.logit_scale.log, method.logit_bias))
    expected = sigmoid_pairs_reference(z1, z2, log.exp(), shift, ids).mean()
    expected_gradients = torch.autograd.grad(expected, [z1, z2, log, shift])
    loss = method.contrast({"z1": z1, "z2": z2, "ids": ids}).loss
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    gradients = torch.autograd.grad(loss, [z1, z2, method.logit_scale.log, method.logit_bias])
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_equals_open_clip(kind: str) -> None:
    from nearfar import _torchvision  # noqa: F401, before open_clip

    pytest.importorskip("open_clip")
    from open_clip.loss import ClipLoss, SigLipLoss

    method = image_text(loss=kind).double()
    z1, z2 = (z.requires_grad_() for z in rows(2, B, D))
    learned = [z1, z2, *(p for key, p in method.named_parameters() if key.startswith("logit"))]
    u1, u2, scale = F.normalize(z1), F.normalize(z2), method.logit_scale.log.exp()
    expected = ClipLoss()(u1, u2, scale) if kind == "softmax" else SigLipLoss()(u1, u2, scale, method.logit_bias)
    loss = method.contrast({"z1": z1, "z2": z2, "ids": IDS}).loss
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, learned), torch.autograd.grad(expected, learned))


def test_starts_as_the_papers_do() -> None:
    clip, sigmoid = image_text(), SigLIP(image_text().encoder)
    assert clip.logit_scale().item() == pytest.approx(1 / 0.07) and clip.logit_bias is None
    assert sigmoid.logit_scale().item() == pytest.approx(10) and sigmoid.logit_bias.item() == -10
    with torch.no_grad():
        clip.logit_scale.log.fill_(9.0)
    assert clip(make_batch()).log["logit_scale"].item() == pytest.approx(100)


def test_pairs_with_the_same_caption_or_image_are_no_negatives() -> None:
    images = torch.tensor([0, 0, 1, 2, 3, 4])  # two captions of the first
    texts = caption_ids(["a dog", "a dog runs", "a cat", "a cow", "A cat", "a hen"])
    ids = merged_ids(images, texts)
    assert ids.tolist() == [0, 0, 1, 2, 1, 3]
    method = image_text().double()
    z1, z2 = rows(2, B, D)
    logits = F.normalize(z1) @ F.normalize(z2).T / 0.07
    for i, j in ((0, 1), (2, 4)):
        logits[i, j] = logits[j, i] = -torch.inf
    expected = (F.cross_entropy(logits, IDS) + F.cross_entropy(logits.T, IDS)) / 2
    torch.testing.assert_close(method.contrast({"z1": z1, "z2": z2, "ids": ids}).loss, expected, rtol=1e-6, atol=0)


def test_locked_stays_frozen_and_in_evaluation_mode() -> None:
    method = LiT(image_text().encoder)
    tower = method.encoder.first
    for mode in (True, False, True):
        assert nn.ModuleList([method]).train(mode)[0].training == mode
        assert not any(part.training for part in tower.encoder.modules())
        assert method.encoder.second.training == mode and tower.projection.training == mode
    before = copy.deepcopy(tower.encoder.state_dict())
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        method(make_batch(step)).loss.backward()
        optimizer.step()
    for key, value in tower.encoder.state_dict().items():  # batch statistics included
        assert torch.equal(value, before[key]), key
    assert all(p.grad is None for p in tower.encoder.parameters())
    assert all(p.grad is not None for p in method.parameters() if p.requires_grad)


def test_what_a_step_reports() -> None:
    for method, candidates in ((image_text(), B), (image_text(loss="sigmoid"), 0)):
        step = method(make_batch())
        assert step.loss.ndim == 0 and step.loss.requires_grad
        assert step.z1.shape == step.z2.shape == (B, D)
        assert not step.z1.requires_grad and not step.z2.requires_grad
        assert step.candidates == candidates
        assert all(value.ndim == 0 and not value.requires_grad for value in step.log.values())
        step.loss.backward()
        assert all(p.grad is not None for p in method.parameters())


@pytest.mark.parametrize("make", [image_text, partial(image_text, loss="sigmoid"), partial(image_text, locked=True)])
def test_state_round_trip_and_chunks(make: Callable[[], CLIP]) -> None:
    method, other = make().eval(), make().eval()
    for p in other.parameters():
        nn.init.ones_(p)
    other.load_state_dict(method.state_dict())
    batch = make_batch()
    whole = method.encode(batch)
    assert torch.equal(method(batch).loss, other(batch).loss)
    parts = [
        method.encode(Batch([x[part] for x in batch.views], batch.index[part], batch.ids[part]))
        for part in (slice(0, 2), slice(2, B))
    ]
    for key, value in whole.items():
        torch.testing.assert_close(torch.cat([p[key] for p in parts]), value)


def test_bfloat16_autocast() -> None:
    for method in (image_text(), image_text(loss="sigmoid")):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = method(make_batch()).loss
        loss.backward()
        assert loss.isfinite() and loss.dtype == torch.float32


def test_embed_is_the_first_tower_in_the_joint_space() -> None:
    method = image_text().eval()
    images = make_batch().views[0]
    z = method.embed(images)
    assert z.shape == (B, D) and torch.equal(z, method.encoder.first(images)) and method.encoder.num_features == D


@pytest.mark.parametrize("make", [CLIP, SigLIP])
def test_paired_features_learn_to_match(make: Callable[..., CLIP]) -> None:
    """Two unlike looks at the same 6 numbers, of things never seen in training."""
    torch.manual_seed(0)
    method = make(TwoTowers(Vectors(20), Vectors(12), embed_dim=16))
    first, second = torch.randn(6, 20), torch.randn(6, 12)

    def looks(seed: int, count: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        hidden = torch.randn(count, 6, generator=generator)
        return [
            (hidden @ m + 0.1 * torch.randn(count, m.shape[1], generator=generator)).tanh() for m in (first, second)
        ]

    def found() -> float:
        with torch.no_grad():
            x1, x2 = looks(10_000, 200)
            similarity = F.normalize(method.encoder.first(x1)) @ F.normalize(method.encoder.second(x2)).T
        return float((similarity.argmax(1) == torch.arange(200)).float().mean())

    assert found() < 0.05
    optimizer = torch.optim.Adam(method.parameters(), lr=3e-3)
    for step in range(150):
        loss = method(Batch(looks(step, 64), torch.arange(64), torch.arange(64))).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert found() > 0.5


def test_images_learn_their_captions() -> None:
    """Eight colours, and two words that name each; held-out noise, all captions among which to choose."""
    torch.manual_seed(0)
    colors = torch.tensor([[(c >> k) & 1 for k in range(3)] for c in range(8)], dtype=torch.float32)
    captions = torch.tensor([[1, 4 + c // 4, 6 + c % 4, 2, 0, 0] for c in range(8)])
    method = image_text(logit_scale=10.0)

    def pictures(which: Tensor) -> Tensor:
        return colors[which][:, :, None, None].expand(-1, -1, 8, 8) + 0.2 * torch.randn(len(which), 3, 8, 8)

    optimizer = torch.optim.Adam(method.parameters(), lr=1e-2)
    for _ in range(60):
        which = torch.randint(8, (32,))
        loss = method(Batch([pictures(which), captions[which]], which, which)).loss  # equal captions: equal ids
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.5 * math.log(8)
    method.eval()
    which = torch.arange(8).repeat(8)
    z = F.normalize(method.embed(pictures(which))) @ F.normalize(method.encoder.second(captions)).T
    assert (z.argmax(1) == which).float().mean() > 0.9


def test_sounds_learn_their_captions() -> None:
    """Audio-text is the same class with another first tower: four bands of noise, and what each is called."""
    torch.manual_seed(0)
    captions = torch.tensor([[1, 4 + band, 2, 0] for band in range(4)])
    texts = TextEncoder(8, 4, width=16, layers=1, heads=2)
    method = CLIP(TwoTowers(audio_encoder("audio-micro", n_mels=16), texts, embed_dim=16), logit_scale=10.0)

    def sounds(which: Tensor) -> Tensor:
        spectrogram = 0.5 * torch.randn(len(which), 1, 16, 24)
        return spectrogram + 3 * (torch.arange(16) // 4 == which[:, None]).float()[:, None, :, None]

    optimizer = torch.optim.Adam(method.parameters(), lr=1e-2)
    for _ in range(40):
        which = torch.randint(4, (16,))
        loss = method(Batch([sounds(which), captions[which]], which, which)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    method.eval()
    which = torch.arange(4).repeat(8)
    z = F.normalize(method.embed(sounds(which))) @ F.normalize(method.encoder.second(captions)).T
    assert (z.argmax(1) == which).float().mean() > 0.9


def test_mistakes_are_told() -> None:
    with pytest.raises(TypeError, match=facts("encoder Linear TwoTowers")):
        CLIP(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=facts("loss 'hinge'")):
        image_text(loss="hinge")
    with pytest.raises(ValueError, match=facts("num_features")):
        TwoTowers(nn.Linear(2, 2), Vectors(3))
    with pytest.raises(ValueError, match=facts("dim 0")):
        TwoTowers(Vectors(2), Vectors(3), embed_dim=0)
    with pytest.raises(TypeError, match=facts("integers")):  # pictures where the tokens should be
        image_text()(Batch([make_batch().views[0]] * 2, IDS, IDS))
