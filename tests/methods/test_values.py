"""Each method's loss, recomputed from its encodings by the paper's formula written out."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.methods import (
    BYOL,
    DIET,
    NNCLR,
    BarlowTwins,
    Batch,
    InstDisc,
    MoCo,
    MoCoV3,
    SimCLR,
    SimSiam,
    SupCon,
    VICReg,
)
from tests.support.facts import facts

B, D = 6, 5
IDS = torch.arange(B)


def rows(count: int = B) -> Tensor:
    return torch.randn(count, D, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def cross_entropy_of_pairs(query: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """Mean over i of -log softmax(<query_i, keys_j> / τ)[i]."""
    logits = F.normalize(query) @ F.normalize(keys).T / temperature
    return F.cross_entropy(logits, torch.arange(len(query)))


def encoder() -> nn.Module:
    return nn.Linear(3, 4)


def test_simclr_takes_the_twin_and_not_the_neighbor() -> None:
    """Error 2 of the mission: pairs laid out in one way, and read in the other."""
    method = SimCLR(encoder(), features=4, dim=D)
    z1, z2 = rows(), rows()
    total = 0.0
    z = F.normalize(torch.cat([z1, z2]))
    for i in range(2 * B):
        twin = (i + B) % (2 * B)
        others = [math.exp(float(z[i] @ z[j]) / 0.5) for j in range(2 * B) if j != i]
        total -= math.log(math.exp(float(z[i] @ z[twin]) / 0.5) / sum(others))
    loss = method.contrast({"z1": z1, "z2": z2, "ids": IDS}).loss
    assert math.isclose(loss.item(), total / (2 * B), rel_tol=1e-9)


def test_moco_contrasts_with_the_queue() -> None:
    method = MoCo(encoder(), features=4, dim=D, queue_size=9).double()
    queued = rows(7)
    method.queue.push(queued, torch.arange(100, 107))
    q, k = rows(), rows()
    step = method.contrast({"q": q, "k": k, "ids": IDS})
    positive = F.cosine_similarity(q, k)[:, None]
    logits = torch.cat([positive, F.normalize(q) @ F.normalize(queued).T], 1) / 0.2
    torch.testing.assert_close(step.loss, F.cross_entropy(logits, torch.zeros(B, dtype=torch.long)))
    assert step.candidates == 8


def test_moco_v3() -> None:
    method = MoCoV3(encoder(), features=4, dim=D, hidden=8)
    q1, q2, k1, k2 = (rows() for _ in range(4))
    step = method.contrast({"q1": q1, "q2": q2, "k1": k1, "k2": k2, "ids": IDS})
    both = cross_entropy_of_pairs(q1, k2, 0.2) + cross_entropy_of_pairs(q2, k1, 0.2)
    torch.testing.assert_close(step.loss, 2 * 0.2 * both)
    torch.testing.assert_close(step.log["info_nce"], both / 2)


def test_byol_and_simsiam() -> None:
    p1, p2, t1, t2 = (rows() for _ in range(4))
    cos12, cos21 = F.cosine_similarity(p1, t2).mean(), F.cosine_similarity(p2, t1).mean()
    byol = BYOL(encoder(), features=4, dim=D, hidden=8)
    torch.testing.assert_close(byol.contrast({"p1": p1, "p2": p2, "t1": t1, "t2": t2}).loss, 4 - 2 * (cos12 + cos21))
    simsiam = SimSiam(encoder(), features=4, dim=D)
    torch.testing.assert_close(simsiam.contrast({"p1": p1, "p2": p2, "z1": t1, "z2": t2}).loss, -(cos12 + cos21) / 2)


def test_barlow_twins() -> None:
    z1, z2 = rows(), rows()
    norm = nn.BatchNorm1d(D, affine=False).double()
    c = norm(z1).T @ norm(z2) / B
    off = c[~torch.eye(D, dtype=torch.bool)]
    expected = (c.diagonal() - 1).square().sum() + 0.0051 * off.square().sum()
    method = BarlowTwins(encoder(), features=4, dim=D, hidden=8)
    torch.testing.assert_close(method.contrast({"z1": z1, "z2": z2}).loss, expected)


def test_vicreg() -> None:
    z1, z2 = rows(), rows()
    expected = 25 * (z1 - z2).square().mean()
    for z in (z1, z2):
        expected = expected + 25 * F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() / 2
        covariance = torch.cov(z.T)
        expected = expected + (covariance.square().sum() - covariance.diagonal().square().sum()) / D
    method = VICReg(encoder(), features=4, dim=D, hidden=8)
    torch.testing.assert_close(method.contrast({"z1": z1, "z2": z2}).loss, expected)


def test_supcon() -> None:
    z1, z2, labels = rows(), rows(), torch.tensor([0, 0, 1, 1, 1, 2])
    z, both = F.normalize(torch.cat([z1, z2])), labels.repeat(2)
    total = 0.0
    for i in range(2 * B):
        others = [j for j in range(2 * B) if j != i]
        everything = math.log(sum(math.exp(float(z[i] @ z[a]) / 0.1) for a in others))
        positives = [p for p in others if both[p] == both[i]]
        total += sum(everything - float(z[i] @ z[p]) / 0.1 for p in positives) / len(positives)
    method = SupCon(encoder(), features=4, dim=D)
    loss = method.contrast({"z1": z1, "z2": z2, "labels": labels, "ids": IDS}).loss
    assert math.isclose(loss.item(), total / (2 * B), rel_tol=1e-9)


def test_supcon_without_labels_says_so() -> None:
    method = SupCon(encoder(), features=4, dim=D)
    x = torch.randn(B, 3)
    with pytest.raises(ValueError, match=facts("label")):
        method.encode(Batch([x, x], IDS, IDS))


def test_nnclr_takes_the_nearest_queued_row() -> None:
    method = NNCLR(encoder(), features=4, dim=D, hidden=8, predictor_hidden=8, queue_size=9).double()
    queued = rows(9)
    method.queue.push(queued, torch.arange(100, 109))
    z1, z2, p1, p2 = (rows() for _ in range(4))
    near1, near2 = (queued[(F.normalize(z) @ F.normalize(queued).T).argmax(1)] for z in (z1, z2))
    expected = (cross_entropy_of_pairs(near1, p2, 0.1) + cross_entropy_of_pairs(near2, p1, 0.1)) / 2
    step = method.contrast({"z1": z1, "z2": z2, "p1": p1, "p2": p2, "ids": IDS})
    torch.testing.assert_close(step.loss, expected)


def test_instdisc() -> None:
    n, m, tau = 50, 20, 0.07
    method = InstDisc(encoder(), features=4, samples=n, dim=D, noise=m, proximal=3.0).double()
    v, index = rows(), torch.tensor([3, 1, 4, 15, 9, 2])
    bank, drawn = method.bank.rows, method.bank.noise(m)
    u = F.normalize(v)
    log_z = math.log(n * (u @ bank[drawn].T / tau).exp().mean())
    total = 0.0
    for i in range(B):

        def h(j: int, i: int = i) -> float:
            p = math.exp(float(u[i] @ bank[j]) / tau - log_z)
            return p / (p + m / n)

        own = int(index[i])
        total -= math.log(h(own)) + sum(math.log(1 - h(j)) for j in drawn.tolist() if j != own)
        total += 3.0 * float((u[i] - bank[own]).square().sum())
    step = method.contrast({"v": v, "index": index, "ids": index})
    # the bank's first rows are of unit length in float32
    assert math.isclose(step.loss.item(), total / B, rel_tol=1e-6)
    assert math.isclose(step.log["log_normalizer"].item(), log_z, rel_tol=1e-6)


def test_diet_is_smoothed_classification_of_sample_numbers() -> None:
    method, index = DIET(encoder(), features=4, samples=9).double(), torch.tensor([3, 1, 4, 8, 5, 2])
    x = torch.randn(B, 3, dtype=torch.float64)
    batch = Batch([x], index, index)
    logits = method.encoder(x) @ method.classifier.weight.T
    step = method(batch)
    expected = F.cross_entropy(logits, index, label_smoothing=0.8)
    torch.testing.assert_close(step.loss, expected)
    label = F.one_hot(index, 9) * 0.2 + 0.8 / 9
    divergence = F.kl_div(logits.log_softmax(1), label.double(), reduction="batchmean")
    torch.testing.assert_close(step.log["divergence"], divergence)


def test_diet_leaves_out_the_classes_of_the_same_id() -> None:
    method, index = DIET(encoder(), features=4, samples=9, smoothing=0.6).double(), torch.arange(B)
    x, ids = torch.randn(B, 3, dtype=torch.float64), torch.tensor([0, 0, 2, 3, 4, 4])
    batch = Batch([x], index, ids)
    torch.testing.assert_close(
        method.eval()(Batch([x], index, index)).loss, method.train()(batch).loss
    )  # not known yet
    method.after_step(0.1)
    total = 0.0
    for i in range(B):
        kept = [j for j in range(9) if j == i or j >= B or ids[j] != ids[i]]
        logits = (method.encoder(x) @ method.classifier.weight.T)[i, kept]
        total += F.cross_entropy(logits[None], torch.tensor([kept.index(i)]), label_smoothing=0.6).item()
    assert math.isclose(method(batch).loss.item(), total / B, rel_tol=1e-9)


def test_diet_needs_the_number_of_samples() -> None:
    with pytest.raises(ValueError, match=facts("samples 0")):
        DIET(encoder(), features=4)


@pytest.mark.parametrize("chunk", [1 << 22, 2 * 20 * D])
def test_instdisc_with_noise_for_each_sample(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the authors' code: own memories count as noise, and the positives in Z."""
    monkeypatch.setattr("nearfar.methods.instdisc._CHUNK", chunk)  # all rows at once, and two at a time
    n, m, tau = 9, 20, 0.07  # so few samples that each meets its own memory among the noise
    method = InstDisc(encoder(), features=4, samples=n, dim=D, noise=m, proximal=0.0, noise_per_sample=True).double()
    method.bank.rows.copy_(F.normalize(method.bank.rows))  # of unit length in float64
    v, index = rows().requires_grad_(), torch.tensor([3, 1, 4, 5, 8, 2])
    bank, drawn = method.bank.rows, method.bank.noise(B, m)
    assert drawn.shape == (B, m) and (drawn == index[:, None]).any() and not torch.equal(drawn[0], drawn[1])
    u = F.normalize(v)
    scores = [[(u[i] @ bank[j] / tau).exp() for j in [int(index[i]), *drawn[i].tolist()]] for i in range(B)]
    z = (n * sum(sum(each) for each in scores) / (B * (1 + m))).detach()
    expected = torch.zeros((), dtype=torch.float64)
    for own, *noise in scores:
        expected = expected - (own / z / (own / z + m / n)).log()
        expected = expected - sum((m / n / (p / z + m / n)).log() for p in noise)
    (gradient,) = torch.autograd.grad(expected / B, v)
    step = method.contrast({"v": v, "index": index, "ids": torch.zeros_like(index)})
    torch.testing.assert_close(step.loss, expected / B, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(step.log["log_normalizer"], z.log(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(step.loss, v)[0], gradient, rtol=1e-10, atol=1e-12)
