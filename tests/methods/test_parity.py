"""One step of a method equals the same step built from lightly's or open_clip's modules: same weights, same batch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar import _torchvision  # noqa: F401, before lightly and open_clip
from nearfar.methods import (
    BYOL,
    CLIP,
    DINO,
    NNCLR,
    BarlowTwins,
    Batch,
    Method,
    MoCo,
    SigLIP,
    SimCLR,
    SimCLRV2,
    SimSiam,
    SwAV,
    VICReg,
)
from nearfar.methods.dino import koleo
from nearfar.nn.text import TextEncoder
from nearfar.nn.towers import TwoTowers

B, F_IN, WIDE, D = 12, 10, 16, 8  # rows, features of the encoder, of hidden layers, of the output
Forward = Callable[[Tensor], Tensor]


def heads() -> Any:
    return pytest.importorskip("lightly.models.modules.heads")


def losses() -> Any:
    return pytest.importorskip("lightly.loss")


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, F_IN), nn.Tanh())


def batch_of(views: int = 2, local: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(B, 6, generator=generator)
    noise = (torch.randn(B, 6, generator=generator) for _ in range(views))
    return Batch([(x + 0.5 * n).double() for n in noise], torch.arange(B), torch.arange(B), local=local)


def same_weights(ours: nn.Module, theirs: nn.Module) -> nn.Module:
    """Their head with our weights; it has the same layers in the same order, or this fails."""
    own, other = list(ours.state_dict().values()), theirs.state_dict()
    assert [x.shape for x in own] == [x.shape for x in other.values()]
    theirs.load_state_dict(dict(zip(other, own, strict=True)))
    return theirs.double().train()


def agree(method: Method, batch: Batch, expected: Tensor, network: nn.Module) -> None:
    """Loss, and gradient in the encoder's first layer."""
    weight = network[0].weight  # type: ignore[index]
    (gradient,) = torch.autograd.grad(expected, weight)
    loss = method(batch).loss
    (own,) = torch.autograd.grad(loss, weight)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(own, gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "layers"), [(SimCLR, 2), (SimCLRV2, 3)])
def test_simclr(kind: type[SimCLR], layers: int) -> None:
    method, batch = kind(encoder(), features=F_IN, hidden=WIDE, dim=D, last_scale=True).double(), batch_of()
    head = same_weights(method.projector, heads().SimCLRProjectionHead(F_IN, WIDE, D, num_layers=layers))
    z1, z2 = (head(method.encoder(x)) for x in batch.views)
    agree(method, batch, losses().NTXentLoss(temperature=method.temperature)(z1, z2), method.encoder)


def test_simclr_with_the_decoupled_loss() -> None:
    method, batch = SimCLR(encoder(), features=F_IN, hidden=WIDE, dim=D, decoupled=True).double(), batch_of()
    z1, z2 = (method.projector(method.encoder(x)) for x in batch.views)
    agree(method, batch, losses().DCLLoss(temperature=0.5)(z1, z2), method.encoder)
    assert method(batch).candidates == 0


def test_moco() -> None:
    method, batch = MoCo(encoder(), features=F_IN, hidden=WIDE, dim=D, queue_size=24, group=0).double(), batch_of()
    head = same_weights(method.projector, heads().MoCoProjectionHead(F_IN, WIDE, D))
    key_head = same_weights(method.projector, heads().MoCoProjectionHead(F_IN, WIDE, D))
    criterion = losses().NTXentLoss(temperature=0.2, memory_bank_size=(24, D)).double()
    method.queue.push(criterion.memory_bank.bank.double(), torch.arange(100, 124))
    q, k = head(method.encoder(batch.views[0])), key_head(method.encoder(batch.views[1])).detach()
    agree(method, batch, criterion(q, k), method.encoder)


def test_byol() -> None:
    method, batch = BYOL(encoder(), features=F_IN, hidden=WIDE, dim=D).double(), batch_of()
    head = same_weights(method.projector, heads().BYOLProjectionHead(F_IN, WIDE, D))
    predict = same_weights(method.predictor, heads().BYOLPredictionHead(D, WIDE, D))
    cosine = losses().NegativeCosineSimilarity()
    z = [head(method.encoder(x)) for x in batch.views]  # the target starts as a copy
    p = [predict(x) for x in z]
    both = cosine(p[0], z[1].detach()) + cosine(p[1], z[0].detach())
    agree(method, batch, 4 + 2 * both, method.encoder)  # squared distances: 2 - 2 cos


@pytest.mark.parametrize("views", [2, 4])
def test_simsiam_and_fastsiam(views: int) -> None:
    """The loop of lightly's example of FastSiam; with two views it is SimSiam."""
    method = SimSiam(encoder(), features=F_IN, projector_hidden=WIDE, dim=D, hidden=4).double()
    batch = batch_of(views)
    head = same_weights(method.projector, heads().SimSiamProjectionHead(F_IN, WIDE, D))
    predict = same_weights(method.predictor, heads().SimSiamPredictionHead(D, 4, D))
    z = [head(method.encoder(x)) for x in batch.views]
    cosine, total = losses().NegativeCosineSimilarity(), torch.zeros((), dtype=torch.float64)
    for i in range(views):
        others = torch.stack([x.detach() for j, x in enumerate(z) if j != i]).mean(0)
        total = total + cosine(predict(z[i]), others) / views
    agree(method, batch, total, method.encoder)


def test_barlow_twins() -> None:
    """With the authors' weight; lightly's default is 0.005."""
    method, batch = BarlowTwins(encoder(), features=F_IN, hidden=WIDE, dim=D).double(), batch_of()
    head = same_weights(method.projector, heads().BarlowTwinsProjectionHead(F_IN, WIDE, D))
    z1, z2 = (head(method.encoder(x)) for x in batch.views)
    agree(method, batch, losses().BarlowTwinsLoss(lambda_param=0.0051)(z1, z2), method.encoder)


def test_swav() -> None:
    """With local views, and with a queue that is full; prototypes of length 1, as lightly's after `normalize`."""
    method = SwAV(
        encoder(), features=F_IN, hidden=WIDE, dim=D, prototypes=7, queue_size=9, queue_start=0.0, frozen=0.0
    ).double()
    batch = batch_of(4, local=2)
    head = same_weights(method.projector, heads().SwaVProjectionHead(F_IN, WIDE, D))
    scores = [F.normalize(head(method.encoder(x)), dim=1) @ method.prototypes.weight.T for x in batch.views[:2]]
    small = F.normalize(head(method.encoder(torch.cat(list(batch.views[2:])))), dim=1) @ method.prototypes.weight.T
    agree(method, batch, losses().SwaVLoss()(scores, list(small.chunk(2))).squeeze(), method.encoder)
    queued = [F.normalize(x, dim=1) for x in torch.randn(2, 9, D, dtype=torch.float64)]
    for queue, rows in zip(method.queues, queued, strict=True):
        queue.push(rows, torch.arange(9))
    earlier = [rows @ method.prototypes.weight.T for rows in queued]
    scores = [F.normalize(head(method.encoder(x)), dim=1) @ method.prototypes.weight.T for x in batch.views[:2]]
    small = F.normalize(head(method.encoder(torch.cat(list(batch.views[2:])))), dim=1) @ method.prototypes.weight.T
    agree(method, batch, losses().SwaVLoss()(scores, list(small.chunk(2)), earlier).squeeze(), method.encoder)


def test_dino() -> None:
    """Head, loss and centre, with local views; the second step has a centre that is not 0."""
    method = DINO(encoder(), features=F_IN, hidden=WIDE, dim=D, prototypes=7, frozen=0.0, momentum=1.0).double()
    batch = batch_of(4, local=2)
    theirs = heads().DINOProjectionHead(F_IN, WIDE, D, 7).double()
    state = theirs.state_dict()
    own = [*method.projector.state_dict().values(), method.prototypes.weight]
    names = [name for name in state if not name.endswith(("original0", "weight_g"))]
    assert [x.shape for x in own] == [state[name].shape for name in names]
    theirs.load_state_dict(state | dict(zip(names, own, strict=True)))
    criterion = losses().DINOLoss(7).double()
    for _ in range(2):
        student = [theirs(method.encoder(x)) for x in batch.views]
        teacher = [x.detach() for x in student[:2]]  # begins as a copy, and with momentum 1 stays one
        agree(method, batch, criterion(teacher, student), method.encoder)
        method.after_step(0.0)
    torch.testing.assert_close(method.center, criterion.center[0, 0], rtol=1e-5, atol=1e-7)


def test_koleo() -> None:
    h = torch.randn(B, D, dtype=torch.float64)
    torch.testing.assert_close(koleo(h, torch.arange(B)), losses().KoLeoLoss()(h))


def test_vicreg() -> None:
    method, batch = VICReg(encoder(), features=F_IN, hidden=WIDE, dim=D).double(), batch_of()
    head = same_weights(method.projector, heads().VICRegProjectionHead(F_IN, WIDE, D, num_layers=3))
    z1, z2 = (head(method.encoder(x)) for x in batch.views)
    agree(method, batch, losses().VICRegLoss()(z1, z2), method.encoder)


def test_nnclr() -> None:
    """Heads and neighbours are lightly's. Its NT-Xent also has neighbours as negatives, which the paper has not."""
    method = NNCLR(encoder(), features=F_IN, hidden=WIDE, dim=D, predictor_hidden=20, queue_size=30).double()
    batch, bank = batch_of(), pytest.importorskip("lightly.models.modules").NNMemoryBankModule(size=(30, D)).double()
    method.queue.push(bank.bank, torch.arange(100, 130))
    head = same_weights(method.projector, heads().NNCLRProjectionHead(F_IN, WIDE, D))
    predict = same_weights(method.predictor, heads().NNCLRPredictionHead(D, 20, D))
    z = [head(method.encoder(x)) for x in batch.views]
    p = [F.normalize(predict(x), dim=1) for x in z]
    near = [F.normalize(bank(x.detach(), update=False), dim=1) for x in z]
    expected = sum(F.cross_entropy(near[i] @ p[1 - i].T / 0.1, torch.arange(B)) for i in range(2)) / 2
    agree(method, batch, torch.as_tensor(expected), method.encoder)


def test_clip_and_siglip_with_open_clips_text_tower() -> None:
    """Causal, QuickGELU, pooled at the end-of-text token, projected, normalized, and then their loss."""
    towers = pytest.importorskip("open_clip.transformer")
    from open_clip.loss import ClipLoss, SigLipLoss

    torch.manual_seed(0)
    texts = TextEncoder(50, 9, width=16, layers=2, heads=2, causal=True, pooling="last", quick_gelu=True)
    theirs = towers.TextTransformer(
        9, 50, width=16, heads=2, layers=2, output_dim=D, act_layer=towers.QuickGELU
    ).double()
    image, both = nn.Sequential(nn.Linear(6, F_IN), nn.Tanh()), {}
    image.num_features = F_IN  # type: ignore[assignment]
    pair = TwoTowers(image, texts, embed_dim=D).double()
    both["token_embedding.weight"], both["positional_embedding"] = texts.token_embedding.weight, texts.positions
    both["ln_final.weight"], both["ln_final.bias"] = texts.transformer.norm.weight, texts.transformer.norm.bias
    both["text_projection"] = pair.second.projection.weight.T
    for i, block in enumerate(texts.transformer.blocks):
        names = {"ln_1": block.norm1, "ln_2": block.norm2, "attn.out_proj": block.attention.out,
                 "mlp.c_fc": block.mlp[0], "mlp.c_proj": block.mlp[2]}  # fmt: skip
        for name, layer in names.items():
            for kind in ("weight", "bias"):
                both[f"transformer.resblocks.{i}.{name}.{kind}"] = getattr(layer, kind)
        both[f"transformer.resblocks.{i}.attn.in_proj_weight"] = block.attention.qkv.weight
        both[f"transformer.resblocks.{i}.attn.in_proj_bias"] = block.attention.qkv.bias
    theirs.load_state_dict(both | {"attn_mask": theirs.attn_mask} if "attn_mask" in theirs.state_dict() else both)
    tokens = torch.randint(1, 49, (B, 9))
    for row, end in enumerate(torch.randint(2, 9, (B,)).tolist()):
        tokens[row, end], tokens[row, end + 1 :] = 49, 0  # the end of the text has the highest number
    batch = Batch([batch_of().views[0], tokens], torch.arange(B), torch.arange(B))
    seen = F.normalize(pair.first(batch.views[0]), dim=1)
    read = F.normalize(theirs(tokens), dim=1)
    torch.testing.assert_close(pair.second(tokens), theirs(tokens), rtol=1e-6, atol=1e-8)
    scale = torch.tensor(1 / 0.07, dtype=torch.float64)
    agree(CLIP(pair).double(), batch, ClipLoss()(seen, read, scale), image)
    seen, read = F.normalize(pair.first(batch.views[0]), dim=1), F.normalize(theirs(tokens), dim=1)
    agree(SigLIP(pair).double(), batch, SigLipLoss()(seen, read, torch.tensor(10.0), torch.tensor(-10.0)), image)
