"""Methods of pictures alone, and InvaSpread: their losses as plain loops in float64, and as lightly has them."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.methods import CMC, PIRL, Batch, DenseCL, InvaSpread
from nearfar.methods.cmc import LabHalves
from nearfar.methods.invaspread import invariant_and_spread
from nearfar.methods.pirl import GRID
from nearfar.nn.lab import rgb_to_lab
from tests.support.facts import tells

B, D = 6, 5


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def spread_loop(z1: Tensor, z2: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """Ye et al. 2019, eqs. 3 to 6, a probability at a time."""
    z, both, total = F.normalize(torch.cat([z1, z2]), dim=1), ids.repeat(2), []
    for i in range(len(z)):
        twin = (i + len(z1)) % len(z)
        others = [j for j in range(len(z)) if both[j] != both[i]]
        whole = sum(((z[i] @ z[j]) / temperature).exp() for j in [twin, *others])
        chance = {j: ((z[i] @ z[j]) / temperature).exp() / whole for j in [twin, *others]}
        total.append(-chance[twin].log() - sum(((1 - chance[j]).log() for j in others), torch.zeros(())))
    return torch.stack(total).mean()


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("ids", [list(range(B)), [0, 0, 1, 2, 3, 4]])
def test_invaspread_equals_the_papers_loop(temperature: float, ids: list[int]) -> None:
    z1, z2 = rows(B, D, seed=1).requires_grad_(), rows(B, D, seed=2)
    found = invariant_and_spread(z1, z2, torch.tensor(ids), temperature=temperature)
    expected = spread_loop(z1, z2, torch.tensor(ids), temperature)
    torch.testing.assert_close(found, expected)
    for seen, right in zip(torch.autograd.grad(found, z1), torch.autograd.grad(expected, z1), strict=True):
        torch.testing.assert_close(seen, right)


def test_invaspread_in_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    z, ids = rows(2 * B, D).requires_grad_(), torch.arange(B)

    def measured() -> tuple[Tensor, Tensor]:
        loss = invariant_and_spread(z[:B], z[B:], ids, temperature=0.1)
        return loss.detach(), torch.autograd.grad(loss, z)[0]

    whole = measured()
    monkeypatch.setattr("nearfar.methods.invaspread._CHUNK", 3 * 2 * B)
    torch.testing.assert_close(measured(), whole)


def test_invaspread_one_sided_has_the_value_and_another_gradient() -> None:
    z, ids = rows(2 * B, D).requires_grad_(), torch.arange(B)
    both = invariant_and_spread(z[:B], z[B:], ids, temperature=0.1)
    one = invariant_and_spread(z[:B], z[B:], ids, temperature=0.1, one_sided=True)
    torch.testing.assert_close(one, both)
    gradients = [torch.autograd.grad(loss, z)[0] for loss in (one, both)]
    assert not torch.allclose(*gradients)
    kept = F.normalize(z.detach(), dim=1)  # the authors' code: one side of each product is data
    scores = (F.normalize(z, dim=1) @ kept.T / 0.1).fill_diagonal_(-torch.inf)
    chance, twin = scores.softmax(1), (torch.arange(2 * B) + B) % (2 * B)
    others = torch.ones(2 * B, 2 * B, dtype=torch.bool).fill_diagonal_(False)
    others[torch.arange(2 * B), twin] = False
    theirs = -(chance[torch.arange(2 * B), twin].log().sum() + (1 - chance[others]).log().sum()) / (2 * B)
    torch.testing.assert_close(torch.autograd.grad(theirs, z)[0], gradients[0])


def lab_loop(red: float, green: float, blue: float) -> list[float]:
    """CIE 15, a color at a time."""
    light = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    matrix = [(0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227)]
    white = (0.95047, 1.0, 1.08883)
    part = [sum(m * c for m, c in zip(row, light, strict=True)) / w for row, w in zip(matrix, white, strict=True)]
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in part)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


def test_lab_is_that_of_the_standard() -> None:
    colors = torch.rand(30, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    colors[:3] = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.02, 0.02, 0.02]])
    found = rgb_to_lab(colors[..., None, None])[..., 0, 0]
    torch.testing.assert_close(found, torch.tensor([lab_loop(*c.tolist()) for c in colors], dtype=torch.float64))
    assert rgb_to_lab(torch.rand(2, 3, 4, 4).bfloat16()).dtype == torch.float32


def image_encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_cmc_equals_its_loop_and_each_half_sees_its_own_channels() -> None:
    method = CMC(image_encoder(), features=8, dim=D, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)).double()
    x = torch.rand(B, 3, 6, 6, dtype=torch.float64)
    scale = [torch.tensor(v, dtype=torch.float64)[:, None, None] for v in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
    batch = Batch([(x - scale[0]) / scale[1]], torch.arange(B), torch.arange(B))
    encoded = method.encode(batch)
    z1, z2 = (F.normalize(encoded[name], dim=1) for name in ("z1", "z2"))
    total = torch.zeros((), dtype=torch.float64)
    for i in range(B):
        for a, b in ((z1, z2), (z2, z1)):
            e = torch.stack([((a[i] @ b[j]) / 0.07).exp() for j in range(B)])
            total = total - (e[i] / e.sum()).log() / (2 * B)
    torch.testing.assert_close(method.contrast(encoded).loss, total)
    shade = torch.rand(B, 1, 6, 6, dtype=torch.float64).expand(-1, 3, -1, -1)  # gray: no color to be seen
    _, color = method.encoder.halves_of((shade - scale[0]) / scale[1])
    torch.testing.assert_close(color, color[:1].expand_as(color), atol=1e-4, rtol=0)
    assert method.encoder.num_features == 16 and method.encoder(batch.views[0]).shape == (B, 16)


def test_cmc_keeps_both_halves() -> None:
    kept = CMC.trained_encoder(image_encoder(), 8, dim=D)
    assert isinstance(kept, LabHalves) and CMC.trained_encoder(kept, 16) is kept
    assert CMC(image_encoder(), features=8, summed=True).loss_weight == 2.0


def test_pirls_pieces_are_of_their_cells_and_do_not_hang_on_the_batch() -> None:
    method = PIRL(image_encoder(), features=8, samples=40, dim=D, noise=7)
    x, index = torch.arange(B * 3 * 15 * 12).view(B, 3, 15, 12), torch.arange(B) + 3
    pieces, order = method._draw(x, index)
    assert pieces.shape == (B, GRID**2, 3, 4, 3)  # 64 / 75 of cells of 5 × 4
    assert torch.equal(order.sort(1).values, torch.arange(GRID**2).expand(B, -1))
    for i in range(B):
        for k in range(GRID**2):
            cell = x[i, :, k // GRID * 5 : k // GRID * 5 + 5, k % GRID * 4 : k % GRID * 4 + 4]
            places = cell.unfold(1, 4, 1).unfold(2, 3, 1).reshape(3, -1, 4, 3).transpose(0, 1)
            assert (places == pieces[i, k]).flatten(1).all(1).any()
    again, _ = method._draw(x[2:4], index[2:4])
    assert torch.equal(again, pieces[2:4]) and not torch.equal(order[0], order[1])
    method.after_step(0.1)
    assert not torch.equal(method._draw(x, index)[1], order)


def test_pirl_equals_its_loop() -> None:
    """Eqs. 4 and 5 with the noise of the batch, the memories of its own pictures left out."""
    method = PIRL(image_encoder(), features=8, samples=40, dim=D, noise=7, jigsaw=0.3).double()
    index = torch.arange(B)
    encoded = method.encode(Batch([rows(B, 3, 12, 12, seed=s) for s in (1, 2)], index, index))
    step = method.contrast(encoded)
    log_z, drawn, total = step.log["log_normalizer"], method.bank.noise(7), torch.zeros((), dtype=torch.float64)
    for name, weight in (("v1", 0.7), ("v2", 0.3)):
        for i, v in enumerate(F.normalize(encoded[name], dim=1)):

            def chance(row: Tensor, v: Tensor = v) -> Tensor:
                p = ((v @ row) / 0.07).exp() / log_z.exp()
                return p / (p + 7 / 40)

            total = total - weight * chance(method.bank.rows[i]).log() / B
            for j in [j for j in drawn.tolist() if j != i]:
                total = total - weight * (1 - chance(method.bank.rows[j])).log() / B
    torch.testing.assert_close(step.loss, total)
    method.after_step(0.1)
    moved = F.normalize(0.5 * F.normalize(encoded["v1"].detach(), dim=1) + 0.5 * step.z2, dim=1)
    torch.testing.assert_close(method.bank.rows[:B], moved)


def map_encoder() -> nn.Module:
    torch.manual_seed(0)
    convolutions = (nn.Conv2d(3, 6, 3, 2, 1), nn.Tanh(), nn.Conv2d(6, 8, 3, 2, 1), nn.Tanh())
    return nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_densecl_equals_lightlys_parts_and_loop() -> None:
    """Heads, matching and both losses of lightly's example; its queue has the same rows."""
    heads = pytest.importorskip("lightly.models.modules.heads")
    select = pytest.importorskip("lightly.models.utils").select_most_similar
    criterion = pytest.importorskip("lightly.loss").NTXentLoss(temperature=0.2, memory_bank_size=(24, D)).double()
    criterion2 = pytest.importorskip("lightly.loss").NTXentLoss(temperature=0.2, memory_bank_size=(24, D)).double()
    method = DenseCL(map_encoder(), features=8, hidden=7, dim=D, queue_size=24, group=0, dense_start=0.0).double()
    for queue, loss in ((method.queue, criterion), (method.dense_queue, criterion2)):
        queue.push(loss.memory_bank.bank.double(), torch.arange(100, 124))
    own = [method.projector, method.dense_projector]
    theirs = [heads.DenseCLProjectionHead(8, 7, D).double() for _ in own]
    for ours, other in zip(own, theirs, strict=True):
        values = ours.state_dict().values()
        other.load_state_dict(dict(zip(other.state_dict(), values, strict=True)))
    batch = Batch([rows(B, 3, 12, 12, seed=s) for s in (1, 2)], torch.arange(B), torch.arange(B))

    def parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        places = method.encoder[:4](x).flatten(2).transpose(1, 2)  # type: ignore[index]
        return theirs[0](places.mean(1)), theirs[1](places), places

    q, q_dense, q_map = parts(batch.views[0])
    with torch.no_grad():
        k, k_dense, k_map = parts(batch.views[1])
    matched = select(q_map, k_map, k_dense).flatten(0, 1)
    expected = 0.5 * criterion(q, k) + 0.5 * criterion2(q_dense.flatten(0, 1), matched)
    step = method(batch)
    torch.testing.assert_close(step.loss, expected, rtol=1e-5, atol=1e-6)
    weight = method.encoder[0].weight  # type: ignore[index]
    gradients = [torch.autograd.grad(loss, weight)[0] for loss in (step.loss, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
    method.after_step(0.1)
    torch.testing.assert_close(method.dense_queue.keys()[:B], F.normalize(k_dense.mean(1), dim=1))


def test_densecl_begins_as_moco_and_needs_maps() -> None:
    method, (batch, _) = DenseCL.toy(dense_start=0.5)
    step = method.double()(batch)
    assert torch.equal(step.loss.detach(), step.log["whole"])
    method.after_step(0.6)
    later = method(batch)
    torch.testing.assert_close(later.loss.detach(), (later.log["whole"] + later.log["dense"]) / 2)
    with pytest.raises(ValueError) as error:
        DenseCL(nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), features=4)
    assert tells(str(error.value), "densecl maps --backbone")
    with pytest.raises(ValueError, match="dense is 2"):
        DenseCL(map_encoder(), features=8, dense=2)
    assert InvaSpread.max_views == 2
