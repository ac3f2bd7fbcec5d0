"""CPC against the paper's loops, and free of the errors that circulate (MISSION, section 7: 1, 2, 5, 6, 7, 8)."""

import math
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from nearfar.losses import tile_size
from nearfar.methods import CPC, Batch
from nearfar.nn.sequence import CPCEncoder, DilatedEncoder
from nearfar.training.health import measure
from tests.methods.cpc_loops import cpc as reference
from tests.support.facts import facts

B, L, D, C, K = 4, 7, 5, 6, 3


def encoder(channels: int = 2) -> CPCEncoder:
    return CPCEncoder(channels, kernels=(3, 2), strides=(1, 2), width=D, context=C)


def make(negatives: str = "both", **options: int) -> CPC:
    torch.manual_seed(0)
    return CPC(encoder(), features=C, horizons=K, negatives=negatives, **options).double()  # type: ignore[arg-type]


def encoded(lengths: list[int], ids: list[int]) -> dict[str, Tensor]:
    torch.manual_seed(1)
    z, c = torch.randn(B, L, D, dtype=torch.float64), torch.randn(B, L, C, dtype=torch.float64)
    present = torch.arange(L) < torch.tensor(lengths)[:, None]
    return {"z": z.requires_grad_(), "c": c.requires_grad_(), "present": present, "ids": torch.tensor(ids)}


def sequences(rows: int = B, steps: int = 14, seed: int = 0) -> Batch:
    x = torch.randn(rows, 2, steps, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    index = torch.arange(rows)
    return Batch([x], index, index)


@pytest.mark.parametrize("negatives", ["both", "batch", "sequence"])
@pytest.mark.parametrize("lengths", [[L, L, L, L], [7, 4, 2, 1]], ids=["equal", "unequal"])
@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [5, 5, 2, 3]], ids=["apart", "shared"])
def test_value_and_gradient_are_the_papers(negatives: str, lengths: list[int], ids: list[int]) -> None:
    method, given = make(negatives), encoded(lengths, ids)
    w = method.predictors.weight
    leaves = [given["z"], given["c"], w]
    loss = method.contrast(given).loss
    found = torch.autograd.grad(loss, leaves)
    expected, _ = reference(given["z"], given["c"], w.view(K, D, C), lengths, ids, negatives)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(found, torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("negatives", ["both", "batch"])
@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [5, 5, 2, 3]], ids=["apart", "shared"])
def test_drawn_negatives_and_the_mean_score_equal_the_loop(negatives: str, ids: list[int]) -> None:
    """As CPC_audio scores: the mean over features, among the positive and n drawn targets; own ids are left out."""
    method, given = make(negatives, drawn=6, mean_score=True), encoded([7, 4, 2, 1], ids)
    method.after_step(0.0)
    w = method.predictors.weight.view(K, D, C)
    by_horizon = []
    for k in range(1, K + 1):
        places = [(b, t) for b, length in enumerate([7, 4, 2, 1]) for t in range(length - k)]
        draws = method._draws(k, len(places)).tolist()
        losses = []
        for row, (b, t) in enumerate(places):
            prediction = w[k - 1] @ given["c"][b, t]
            scores = [(prediction * given["z"][b, t + k]).mean()]
            for other in draws[row]:
                i, s = places[other]
                alone = negatives == "both" and ids.count(ids[b]) == 1
                if other != row and (ids[i] != ids[b] or (i == b and alone)):
                    scores.append((prediction * given["z"][i, s + k]).mean())
            losses.append(torch.stack(scores).logsumexp(0) - scores[0])
        by_horizon.append(torch.stack(losses).mean())
    step = method.contrast(given)
    torch.testing.assert_close(step.loss, torch.stack(by_horizon).mean(), rtol=1e-10, atol=1e-12)
    assert measure(step)["ceiling"] == pytest.approx(math.log(7))


def test_drawn_negatives_are_of_the_step_and_the_seed() -> None:
    method = make(drawn=5)
    first = method._draws(1, 9)
    assert torch.equal(first, method._draws(1, 9)) and not torch.equal(first, method._draws(2, 9))
    method.after_step(0.0)
    assert not torch.equal(first, method._draws(1, 9))
    with pytest.raises(ValueError, match=facts("drawn 5 'sequence'")):
        make("sequence", drawn=5)


def test_the_matrices_may_start_from_a_normal() -> None:
    torch.manual_seed(0)
    wide = CPCEncoder(1, kernels=(2,), strides=(2,), width=96, context=64)
    w = CPC(wide, features=64, horizons=2, normal_start=True).predictors.weight.detach().view(2, 96, 64)
    assert float(w[:, :64].std()) == pytest.approx(1, rel=0.05) and float(w[:, 64:].std()) == pytest.approx(
        0.01, rel=0.05
    )


def test_tiles_change_nothing() -> None:
    method, given = make(), encoded([L] * B, [0, 1, 2, 3])
    whole = method.contrast(given).loss
    with tile_size(4):
        torch.testing.assert_close(method.contrast(given).loss, whole)


@pytest.mark.parametrize("negatives", ["both", "batch"])
def test_no_matrix_of_all_frames_is_held(negatives: str) -> None:
    """Errors 7 and 8: what the backward pass keeps grows with the frames, not with their square."""

    def kept(rows: int) -> int:
        method = make(negatives).float()
        z = torch.randn(rows, 64, D, requires_grad=True)
        given = {
            "z": z,
            "c": torch.randn(rows, 64, C),
            "present": torch.ones(rows, 64).bool(),
            "ids": torch.arange(rows),
        }
        total = 0

        def keep(x: Tensor) -> Tensor:
            nonlocal total
            total += x.numel()
            return x

        with tile_size(64), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            method.contrast(given)
        return total

    assert kept(32) < 2.5 * kept(16)


def test_the_positive_is_the_frame_that_came() -> None:
    """Error 2: rows of predictions and of frames laid out alike. A sequence that can be told ahead costs nothing."""
    method = make("both")
    time = torch.eye(B * L, dtype=torch.float64).view(B, L, B * L)  # each frame is unlike any other
    method.width, method.horizons = B * L, 2
    shift = [torch.diag(torch.ones(B * L - k, dtype=torch.float64), -k) for k in (1, 2)]  # from frame t to t + k
    method.predictors.weight = nn.Parameter(50.0 * torch.cat(shift))
    given = {"z": time, "c": time, "present": torch.ones(B, L).bool(), "ids": torch.arange(B)}
    step = method.contrast(given)
    assert step.loss < 1e-9
    health = measure(step)
    assert health["horizon_accuracy"] == [1.0, 1.0] and health["accuracy"] == 1.0
    method.predictors.weight = nn.Parameter(method.predictors.weight.flip(0))  # W_2 for horizon 1 and so on
    assert method.contrast(given).loss > 1


def test_each_horizon_has_a_matrix_of_its_own() -> None:
    method, given = make(), encoded([L] * B, [0, 1, 2, 3])
    _, before = reference(given["z"], given["c"], method.predictors.weight.view(K, D, C), [L] * B, [0, 1, 2, 3], "both")
    with torch.no_grad():
        method.predictors.weight[D : 2 * D] += 1
    changed = [float(h.loss) for h in method.contrast(given).horizons]
    same = [
        math.isclose(mine, float(torch.stack(old).detach().mean())) for mine, old in zip(changed, before, strict=True)
    ]
    assert same == [True, False, True]


def test_the_context_does_not_see_the_future() -> None:
    """Beyond the reach of the convolutions themselves: a later value changes no earlier context."""
    net, x = encoder().double(), sequences().views[0].clone()
    before = net.frames(x)[0]
    x[:, :, 8:] += 1.0  # frame 4 and later; the first convolution reaches one step back from frame 4, into frame 3
    after = net.frames(x)[0]
    assert torch.equal(before[:, :3], after[:, :3]) and not torch.equal(before[:, 4], after[:, 4])


@pytest.mark.parametrize("scale", [1e3, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scores_beyond_the_range_of_exp(dtype: torch.dtype, scale: float) -> None:
    """Error 6: exp of scores of ten thousands overflows, the loss does not."""
    method = make().float()
    given = {
        k: v.detach().to(dtype) * scale if v.is_floating_point() else v
        for k, v in encoded([7, 5, 7, 7], [0, 1, 2, 3]).items()
    }
    for mode in ("both", "batch", "sequence"):
        method.negatives = mode  # type: ignore[assignment]
        method.predictors.weight.data = method.predictors.weight.data.to(dtype)
        z = given["z"].requires_grad_()
        loss = method.contrast(given).loss
        (gradient,) = torch.autograd.grad(loss, z)
        assert loss.isfinite() and loss.dtype == torch.float32 and gradient.isfinite().all()
        if scale < 1:  # all scores alike: log N of each horizon
            expected = measure(method.contrast(given))["ceiling"]
            assert math.isclose(float(loss), expected, rel_tol=1e-2)  # type: ignore[arg-type]


def test_scores_have_no_temperature() -> None:
    """Errors 1 and 5: the log-bilinear score is the scale; nothing divides it, so nothing can divide half of it."""
    assert not hasattr(make(), "temperature")


@pytest.mark.parametrize("negatives", ["both", "batch", "sequence"])
def test_the_health_of_each_horizon(negatives: str) -> None:
    lengths, ids = [7, 6, 4, 1], [0, 1, 2, 3]
    method, given = make(negatives), encoded(lengths, ids)
    step = method.contrast(given)
    found = measure(step)
    _, by_horizon = reference(given["z"], given["c"], method.predictors.weight.view(K, D, C), lengths, ids, negatives)
    assert found["horizons"] == [1.0, 2.0, 3.0]
    w = method.predictors.weight.view(K, D, C)
    for k in range(1, K + 1):
        places = [(b, t) for b in range(B) for t in range(lengths[b] - k)]
        right, ceiling = 0, 0.0
        for b, t in places:
            others = [
                (o, u)
                for o, u in places
                if (o, u) != (b, t) and (negatives == "both" or (o == b) == (negatives == "sequence"))
            ]
            scores = [float(w[k - 1] @ given["c"][b, t] @ given["z"][o, u + k]) for o, u in [(b, t), *others]]
            right += all(scores[0] > s for s in scores[1:])
            ceiling += math.log(len(scores))
        ceiling /= len(places)
        loss = float(torch.stack(by_horizon[k - 1]).mean())
        assert math.isclose(found["horizon_accuracy"][k - 1], right / len(places), rel_tol=1e-6)  # type: ignore[index]
        assert math.isclose(found["horizon_ceiling"][k - 1], ceiling, rel_tol=1e-6)  # type: ignore[index]
        assert math.isclose(found["horizon_bound"][k - 1], max(ceiling - loss, 0), abs_tol=1e-5)  # type: ignore[index]
        assert found["horizon_bound"][k - 1] <= found["horizon_ceiling"][k - 1]  # type: ignore[index]
    assert math.isclose(found["ceiling"], sum(found["horizon_ceiling"]) / K)  # type: ignore[arg-type]
    assert len(step.z1) == len(step.z2) == sum(lengths) - B and not step.z1.requires_grad


def test_positions_are_drawn_anew_and_again_the_same() -> None:
    method, given = make(positions=2), encoded([7, 7, 2, 1], [0, 1, 2, 3])
    chosen = method._chosen(given["present"])
    assert chosen.sum(1).tolist() == [2, 2, 1, 0]  # a sequence of two frames predicts once
    assert torch.equal(chosen, method._chosen(given["present"]))
    assert len(method.contrast(given).horizons[0].query) == 5
    drawn = set()
    for _ in range(8):
        method.after_step(0.0)
        drawn.add(tuple(method._chosen(given["present"])[0].tolist()))
    assert len(drawn) > 3


def test_training_lowers_the_loss_and_states_continue() -> None:
    def trained(method: CPC, steps: range) -> list[float]:
        optimizer = torch.optim.Adam(method.parameters(), lr=0.01)
        losses = []
        for _ in steps:
            loss = method(sequences(8, 20)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            method.after_step(0.0)
            losses.append(loss.item())
        return losses

    losses = trained(make(positions=4), range(60))
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    first, second = make(positions=4), make(positions=4)
    trained(first, range(3))
    second.load_state_dict(first.state_dict())
    assert trained(first, range(2)) == trained(second, range(2))


def test_chunks_encode_as_the_whole() -> None:
    method, batch = make().eval(), sequences()
    x = batch.views[0].clone()
    x[1, :, 9:] = torch.nan
    whole = method.encode(Batch([x], batch.index, batch.ids))
    parts = [method.encode(Batch([x[r]], batch.index[r], batch.ids[r])) for r in (slice(0, 1), slice(1, B))]
    for key, value in whole.items():
        torch.testing.assert_close(torch.cat([part[key] for part in parts]), value)


def test_horizons_beyond_the_sequence_are_left_out() -> None:
    method = make()
    step = method.contrast(encoded([3, 3, 2, 2], [0, 1, 2, 3]))
    assert [h.ahead for h in step.horizons] == [1, 2]
    with pytest.raises(ValueError, match=facts("2")):
        method.contrast(encoded([1, 1, 1, 1], [0, 1, 2, 3]))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=facts("DilatedEncoder")):
        CPC(DilatedEncoder(), features=4)
    with pytest.raises(ValueError, match=facts("negatives 'all'")):
        CPC(encoder(), features=C, negatives="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=facts("horizons 0")):
        CPC(encoder(), features=C, horizons=0)


def test_bfloat16_autocast() -> None:
    method = make().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = method(Batch([sequences().views[0].float()], torch.arange(B), torch.arange(B))).loss
    loss.backward()
    assert loss.isfinite() and loss.dtype == torch.float32


def test_the_loss_goes_through_the_engine() -> None:
    with mock.patch("nearfar.methods.cpc.info_nce", wraps=__import__("nearfar").losses.info_nce) as engine:
        make().contrast(encoded([L] * B, [0, 1, 2, 3]))
    assert engine.call_count == K
