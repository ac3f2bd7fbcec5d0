"""Errors that circulate, and that the methods are free of (MISSION, section 7: 3, 4, 11), and their stores."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nearfar.methods import BYOL, NNCLR, Batch, InstDisc, Method, MoCo, MoCoV1, MoCoV3, SupCon
from nearfar.methods import step_buffer as pending_module
from tests.support.facts import facts


def encoder() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 8))


def batch(seed: int = 0, rows: int = 12) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    views = torch.randn(2, rows, 6, generator=generator)
    index = torch.arange(rows) + rows * seed
    return Batch(list(views), index, index)


def momentum_methods() -> list[Method]:
    torch.manual_seed(0)
    return [
        MoCo(encoder(), features=8, dim=4, queue_size=30),
        MoCoV1(encoder(), features=8, dim=4, queue_size=30),
        MoCoV3(encoder(), features=8, dim=4, hidden=8),
        BYOL(encoder(), features=8, dim=4, hidden=8),
    ]


def momentum_network(method: Method) -> nn.Module:
    return method.target if isinstance(method, BYOL) else method.key_network  # type: ignore[return-value]


def query_network(method: Method) -> nn.Sequential:
    return nn.Sequential(method.encoder, method.projector)  # type: ignore[arg-type]


def sgd_step(method: Method, data: Batch) -> None:
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
    method(data).loss.backward()
    optimizer.step()


@pytest.mark.parametrize("method", momentum_methods(), ids=lambda m: type(m).__name__)
class TestMomentumNetwork:
    def test_is_a_true_copy(self, method: Method) -> None:
        copied, source = momentum_network(method), query_network(method)
        mine = {t.untyped_storage().data_ptr() for t in (*copied.parameters(), *copied.buffers())}
        theirs = {t.untyped_storage().data_ptr() for t in (*source.parameters(), *source.buffers())}
        assert not mine & theirs
        for a, b in zip(copied.parameters(), source.parameters(), strict=True):
            assert torch.equal(a, b)

    def test_is_frozen_and_the_query_network_is_not(self, method: Method) -> None:
        assert not any(p.requires_grad for p in momentum_network(method).parameters())
        assert all(p.requires_grad for p in query_network(method).parameters())

    def test_moves_by_the_formula_buffers_included(self, method: Method) -> None:
        sgd_step(method, batch())
        before = copy.deepcopy(momentum_network(method).state_dict())
        source = query_network(method).state_dict()
        progress = 0.25
        m = method.momentum
        if isinstance(method, MoCoV3):  # BYOL's first update has the momentum of the start
            m = 1 - (1 - m) * (math.cos(math.pi * progress) + 1) / 2
        method.after_step(progress)
        changed_buffers = 0
        for key, value in momentum_network(method).state_dict().items():
            if value.is_floating_point():
                torch.testing.assert_close(value, m * before[key] + (1 - m) * source[key], msg=key)
                changed_buffers += "running" in key and not torch.equal(value, before[key])
            else:
                assert torch.equal(value, source[key]), key
        assert changed_buffers >= 2  # running mean and variance follow

    def test_takes_no_gradient(self, method: Method) -> None:
        method(batch()).loss.backward()
        assert all(p.grad is None for p in momentum_network(method).parameters())
        assert all(p.grad is not None for p in method.encoder.parameters())

    def test_a_forward_pass_leaves_it_alone(self, method: Method) -> None:
        before = copy.deepcopy(momentum_network(method).state_dict())
        method(batch(3))
        for key, value in momentum_network(method).state_dict().items():
            assert "num_batches" in key or torch.equal(value, before[key]), key


def test_byols_projections_are_standardized_if_asked() -> None:
    method = BYOL(torch.nn.Flatten(), features=12, dim=6, hidden=8, last_batch_norm=True)
    projected = method.projector(5 * torch.randn(64, 12) + 3)
    torch.testing.assert_close(projected.mean(0), torch.zeros(6), rtol=0, atol=1e-5)
    torch.testing.assert_close(projected.var(0, unbiased=False), torch.ones(6), rtol=0, atol=1e-2)
    assert not any(
        isinstance(part, torch.nn.BatchNorm1d) for part in BYOL(torch.nn.Flatten(), features=12).projector[-1:]
    )


def test_byols_momentum_rises_to_one() -> None:
    method = BYOL(encoder(), features=8, dim=4, hidden=8)
    seen = []
    for step in range(10):
        method.after_step((step + 1) / 10)
        seen.append(method.target_momentum.item())
    # Step n of N moves by the momentum at n / N, counted from 0, as in the authors' code.
    assert seen == pytest.approx([1 - 0.004 * (math.cos(math.pi * n / 10) + 1) / 2 for n in range(10)], abs=1e-7)
    method.after_step(1.0)
    before = copy.deepcopy(method.target.state_dict())
    sgd_step(method, batch())
    method.after_step(1.0)
    assert all(torch.equal(v, before[k]) for k, v in method.target.state_dict().items() if v.is_floating_point())


class TestMoCo:
    def make(self, **options: int) -> MoCo:
        torch.manual_seed(0)
        return MoCo(encoder(), features=8, dim=4, **{"queue_size": 30, **options})

    def test_keys_come_back_in_the_order_of_the_queries(self) -> None:
        method = self.make().eval()
        x = batch().views[0]
        encoded = method.encode(Batch([x, x], batch().index, batch().ids))
        torch.testing.assert_close(encoded["q"], encoded["k"])  # a copy that has not moved yet

    def test_keys_are_normalised_in_groups_of_their_own(self) -> None:
        method = self.make(group=4)
        order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
        k = method.encode(batch())["k"]
        network = method.key_network
        expected = torch.empty_like(k)
        with torch.no_grad():
            for part in order.tensor_split(3):
                expected[part] = network(batch().views[1][part])
        torch.testing.assert_close(k, expected)
        whole = self.make(group=0).encode(batch())["k"]
        assert not torch.allclose(k, whole)

    def test_the_shuffle_is_another_at_each_step_and_the_same_within_one(self) -> None:
        method = self.make(group=4)
        first, again = method.encode(batch())["k"], method.encode(batch())["k"]
        assert torch.equal(first, again)
        method.steps += 1
        assert not torch.allclose(method.encode(batch())["k"], first)

    def test_pushes_what_it_contrasted_once_per_batch(self) -> None:
        method = self.make()
        pushed = []
        for step in range(5):  # 60 keys through 30 places, in batches that do not divide it
            data = batch(step, rows=12)
            sgd_step(method, data)
            method.after_step(0.0)
            pushed += data.ids.tolist()
            assert sorted(method.queue.ids().tolist()) == sorted(pushed[-30:])
            torch.testing.assert_close(method.queue.keys().norm(dim=1), torch.ones(min(30, len(pushed))))

    def test_accumulated_batches_are_all_pushed(self) -> None:
        method = self.make()
        for step in range(2):
            method(batch(step)).loss.backward()
        method.after_step(0.0)
        assert len(method.queue) == 24

    def test_the_first_step_knows_no_random_negatives(self) -> None:
        step = self.make()(batch())
        assert step.candidates == 12 and step.loss > 0 and step.log["queue_fill"] == 0

    def test_queue_fill_and_age(self) -> None:
        method = self.make(queue_size=48)
        for step in range(3):
            sgd_step(method, batch(step))
            method.after_step(0.0)
        log = method(batch(3)).log
        assert log["queue_fill"].item() == 0.75 and log["queue_age"].item() == 2.0
        assert 0 < log["ema_distance"] < 1

    def test_never_calling_after_step_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pending_module, "MOST", 3)
        method = self.make()
        with pytest.raises(RuntimeError, match=facts("after_step")):
            for _ in range(4):
                method(batch())


class TestInstDisc:
    def make(self, **options: float) -> InstDisc:
        torch.manual_seed(0)
        return InstDisc(encoder(), features=8, samples=60, dim=4, noise=16, **options)  # type: ignore[arg-type]

    def test_the_normaliser_is_held_after_the_first_step(self) -> None:
        method = self.make()
        first = method(batch()).log["log_normalizer"]
        assert method.log_normalizer.isnan()
        method.after_step(0.0)
        assert method.log_normalizer == first
        for step in range(1, 4):
            sgd_step(method, batch(step))
            method.after_step(0.0)
        assert method.log_normalizer == first

    def test_the_normaliser_may_be_held_later(self) -> None:
        method, seen = self.make(held_after=3), []
        for step in range(5):
            data = batch(step)
            estimate = method.contrast(method.encode(data)).log["log_normalizer"]
            method._step_buffer.take()
            sgd_step(method, data)
            method.after_step(0.0)
            seen.append(method.log_normalizer.item())
            assert step >= 3 or method.log_normalizer == estimate
        assert len(set(seen)) == 3 and seen[2] == seen[3] == seen[4]

    def test_memories_move_by_the_formula(self) -> None:
        method = self.make(momentum=0.5)
        data = replace(batch(1), views=batch(1).views[:1])
        before = method.bank.rows.clone()
        v = nn.functional.normalize(method.encode(data)["v"].detach())
        method.contrast(method.encode(data))
        method.after_step(0.0)
        expected = nn.functional.normalize((before[data.index] + v) / 2)
        torch.testing.assert_close(method.bank.rows[data.index], expected)
        others = torch.ones(60, dtype=torch.bool).index_fill(0, data.index, False)
        assert torch.equal(method.bank.rows[others], before[others])

    def test_the_noise_is_the_steps_own(self) -> None:
        method = self.make()
        drawn = method.bank.noise(16)
        assert torch.equal(method.bank.noise(16), drawn)
        method.after_step(0.0)
        assert not torch.equal(method.bank.noise(16), drawn)

    def test_without_the_number_of_samples(self) -> None:
        with pytest.raises(ValueError, match=facts("samples 0")):
            InstDisc(encoder(), features=8)

    @pytest.mark.parametrize("noise", [0, -1, 2.5, "many"])
    def test_a_wrong_number_of_noise_samples(self, noise: object) -> None:
        with pytest.raises(ValueError, match=facts(f"noise {noise}")):
            InstDisc(encoder(), features=8, samples=60, noise=noise)  # type: ignore[arg-type]

    def test_a_sample_outside_the_bank(self) -> None:
        with pytest.raises(ValueError, match=facts("bank 60")):
            self.make()(batch(9))


def test_nnclr_queues_the_first_views_projections() -> None:
    torch.manual_seed(0)
    method = NNCLR(encoder(), features=8, dim=4, hidden=8, predictor_hidden=8, queue_size=20)
    data = batch()
    z1: Tensor = method.encode(data)["z1"]
    method(data).loss.backward()
    method.after_step(0.0)
    torch.testing.assert_close(method.queue.keys(), nn.functional.normalize(z1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", [*momentum_methods()[:1], TestInstDisc().make()], ids=lambda m: type(m).__name__)
def test_rows_that_are_not_finite_reach_no_store(method: Method) -> None:
    data = batch()
    data.views[0][3] = torch.nan
    data.views[1][3] = torch.inf
    method.eval()  # so that batch-norm does not spread it
    encoded = method.encode(data)
    method.train()
    method.contrast(encoded)
    method.after_step(0.0)
    for key, value in method.state_dict().items():
        assert "rows" not in key or value.isfinite().all()


@pytest.mark.parametrize("group", [1, 2, 3])
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 12, 13, 15])
def test_mocos_groups_have_two_samples_or_more(group: int, rows: int) -> None:
    method = TestMoCo().make(group=group)
    groups = method._groups(rows)
    assert groups == 1 or min(len(part) for part in torch.arange(rows).tensor_split(groups)) >= 2
    assert method(batch(rows=rows)).loss.isfinite()


def test_a_negative_group_is_refused() -> None:
    with pytest.raises(ValueError, match="group is -1"):
        TestMoCo().make(group=-1)


def labelled(labels: Tensor) -> Batch:
    return replace(batch(), labels=labels)


def test_supcon_takes_booleans_as_two_classes() -> None:
    torch.manual_seed(0)
    method = SupCon(encoder(), features=8, dim=4)
    labels = torch.arange(12) % 2
    assert torch.equal(method(labelled(labels == 1)).loss, method(labelled(labels)).loss)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_supcon_refuses_labels_that_are_no_classes(dtype: torch.dtype) -> None:
    method = SupCon(encoder(), features=8, dim=4)
    with pytest.raises(TypeError, match=f"labels are {dtype}, expected whole numbers"):
        method(labelled(torch.arange(12).to(dtype)))
