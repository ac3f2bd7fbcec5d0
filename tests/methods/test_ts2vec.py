"""TS2Vec: its loss as loops over series, moments and scales, and its crops and masks."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.methods import METHODS, TS2Vec
from nearfar.methods.ts2vec import hierarchical_contrast
from nearfar.nn.sequence import DilatedEncoder
from tests.support.facts import facts

IDS = torch.tensor([4, 7, 4, 1])


def find(own: Tensor, other: Tensor, negatives: list[Tensor]) -> Tensor:
    """-log of the share of the positive, by inner products."""
    scores = torch.stack([own @ other, *(own @ x for x in negatives)])
    return -F.log_softmax(scores, 0)[0]


def loops(z1: Tensor, z2: Tensor, ids: list[int], alpha: float, unit: int) -> Tensor:
    total, scales = torch.zeros((), dtype=z1.dtype), 0
    while True:
        rows, length, _ = z1.shape
        across, within = [], []
        for a, b in ((z1, z2), (z2, z1)):
            for i in range(rows):
                for t in range(length):
                    others = [z[j, t] for z in (z1, z2) for j in range(rows) if ids[j] != ids[i]]
                    across.append(find(a[i, t], b[i, t], others))
                    moments = [z[i, s] for z in (z1, z2) for s in range(length) if s != t]
                    within.append(find(a[i, t], b[i, t], moments))
        total = total + alpha * torch.stack(across).mean()
        if scales >= unit and length > 1:
            total = total + (1 - alpha) * torch.stack(within).mean()
        scales += 1
        if length == 1:
            return total / scales
        z1, z2 = (torch.stack([z[:, k : k + 2].amax(1) for k in range(0, length - 1, 2)], 1) for z in (z1, z2))


@pytest.mark.parametrize(("length", "alpha", "unit"), [(6, 0.5, 0), (5, 0.2, 1), (1, 0.5, 0)])
@pytest.mark.parametrize("ids", [IDS, torch.arange(4), torch.zeros(4).long()])
def test_the_loss_equals_loops(length: int, alpha: float, unit: int, ids: Tensor) -> None:
    torch.manual_seed(0)
    z1, z2 = torch.randn(2, 4, length, 3, dtype=torch.float64, requires_grad=True)
    found, _ = hierarchical_contrast(z1, z2, ids, instance=alpha, temporal_unit=unit)
    expected = loops(z1, z2, ids.tolist(), alpha, unit)
    torch.testing.assert_close(found, expected)
    if found.grad_fn is not None and expected > 0:
        for a, b in zip(*(torch.autograd.grad(x, (z1, z2), retain_graph=True) for x in (found, expected)), strict=True):
            torch.testing.assert_close(a, b)


def authors(z1: Tensor, z2: Tensor, alpha: float = 0.5) -> Tensor:
    """The shape of the authors' computation: cross-entropies over rows of the matrix without its diagonal."""
    total, scales = torch.zeros((), dtype=z1.dtype), 0
    while z1.shape[1] > 0:
        for z, weight in ((torch.cat([z1, z2]).transpose(0, 1), alpha), (torch.cat([z1, z2], 1), 1 - alpha)):
            half = z.shape[1] // 2
            if half == 1:
                continue
            logits = (z @ z.transpose(1, 2)).masked_fill(torch.eye(2 * half).bool(), -torch.inf)
            twin = torch.arange(2 * half).roll(half)
            total = total + weight * F.cross_entropy(logits.flatten(0, 1), twin.repeat(len(z)))
        scales += 1
        if z1.shape[1] == 1:
            break
        z1, z2 = (F.max_pool1d(z.transpose(1, 2), 2).transpose(1, 2) for z in (z1, z2))
    return total / scales


def test_with_ids_of_their_own_it_is_the_authors_loss() -> None:
    torch.manual_seed(1)
    z1, z2 = torch.randn(2, 5, 13, 4, dtype=torch.float64)
    torch.testing.assert_close(hierarchical_contrast(z1, z2, torch.arange(5), instance=0.5)[0], authors(z1, z2))


def test_crops_overlap_where_their_frames_are_compared() -> None:
    """With an encoder that tells the moment, both crops tell the same moments of the same sample."""
    method, _ = TS2Vec.toy(mask_rate=0.0)
    assert isinstance(method, TS2Vec)
    x = torch.arange(30.0).repeat(6, 1, 1) + 100 * torch.arange(6.0)[:, None, None]
    seen = set()
    for _ in range(40):
        crops = method._crops(30)
        offset, kept = method._draw(crops, torch.arange(6))
        assert kept.all() and 2 <= crops.overlap <= 30
        parts = []
        for crop in crops[:2]:
            place = offset[:, None] + torch.arange(crop.start, crop.stop)
            assert place.min() >= 0 and place.max() < 30
            parts.append(x[:, 0].gather(1, place))
        assert torch.equal(parts[0][:, -crops.overlap :], parts[1][:, : crops.overlap])
        seen.add((crops.overlap, tuple(offset.tolist())))
        method.after_step(0.0)
    assert len(seen) > 30


def test_what_is_drawn_for_a_sample_does_not_depend_on_its_batch() -> None:
    method, _ = METHODS["ts2vec"].toy(seed=3)
    assert isinstance(method, TS2Vec)
    crops = method._crops(16)
    offset, kept = method._draw(crops, torch.tensor([5, 2, 9]))
    one, only = method._draw(crops, torch.tensor([2]))
    assert offset[1] == one[0] and torch.equal(kept[:, 1], only[:, 0])
    assert 0.3 < kept.float().mean() < 0.7
    other, _ = METHODS["ts2vec"].toy(seed=4)
    assert isinstance(other, TS2Vec)
    assert not torch.equal(other._draw(crops, torch.tensor([5, 2, 9]))[1], kept)


def test_masked_moments_are_zero_behind_the_first_layer() -> None:
    torch.manual_seed(0)
    encoder = DilatedEncoder(1, width=4, depth=1, features=3)
    x, keep = torch.randn(2, 1, 8), torch.rand(2, 8) > 0.5
    changed = torch.where(keep[:, None], x, 99.0)
    assert torch.equal(encoder.frames(x, keep)[0], encoder.frames(changed, keep)[0])
    assert not torch.equal(encoder.frames(x)[0], encoder.frames(x, keep)[0])


def test_another_backbone_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=facts("Linear --backbone dilated-small")):
        TS2Vec(nn.Linear(3, 4), features=4)
