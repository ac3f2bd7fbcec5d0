"""Any number of views: two as ever, bit for bit; more by each method's rule, in loops over pairs."""

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.losses import (
    barlow_twins,
    cosine_regression,
    estimate_log_normalizer,
    info_nce,
    nce,
    nt_xent,
    reference,
    sup_con,
    vicreg,
)
from nearfar.losses.info_nce import info_nce_reference, nt_xent_views_reference
from nearfar.losses.redundancy import barlow_twins_reference, vicreg_views_reference
from nearfar.losses.regression import cosine_regression_reference
from nearfar.losses.supervised import sup_con_reference
from nearfar.methods import METHODS, Batch, Encoded, Method, SimCLR
from nearfar.methods.check import toy_subjects
from nearfar.methods.simcse import SimCSE
from nearfar.methods.toy import ToyImageEncoder, toy_text_encoder, with_more_views
from nearfar.methods.views import Views, by_name, encode_views, from_names, pairs_of
from nearfar.nn.norm import forward_in_groups

MANY = [name for name, kind in METHODS.items() if kind.max_views is None and kind.max_local is None]
NUMBERS = [(2, 0), (3, 0), (4, 2)]


def made(name: str, full: int, local: int, dtype: torch.dtype = torch.float64) -> tuple[Method, Batch]:
    """After one step, so that queues and banks are filled."""
    method, (first, batch) = with_more_views(METHODS[name].toy(), full, local)
    method.to(dtype).train()
    for each in (m for m in method.modules() if isinstance(m, nn.Dropout)):
        each.p = 0.0
    method(in_dtype(first, dtype))
    method.after_step(0.5)
    return method, in_dtype(batch, dtype)


def in_dtype(batch: Batch, dtype: torch.dtype) -> Batch:
    return replace(batch, views=[x.to(dtype) for x in batch.views])


LATER = {"diet", "dino", "swav"}  # methods that came with many views

# Two views: the rules as they were before there could be more.

Rule = Callable[[Method, Batch], Tensor]
Heads = tuple[Tensor, Tensor]


def projections(method: Method, batch: Batch) -> Heads:
    z1, z2 = (method.projector(method.encoder(x)) for x in batch.views)
    return z1, z2


def old_moco(method: Method, batch: Batch) -> Tensor:
    (x1, x2), groups = batch.views, method._groups(len(batch.index))
    q = forward_in_groups(nn.Sequential(method.encoder, method.projector), x1, groups)
    with torch.no_grad():
        k = method._keys(x2, groups)
    keys, key_ids = method.queue.keys(), method.queue.ids()
    return info_nce(q, k, keys, temperature=method.temperature, ids=batch.ids, negative_ids=key_ids)


def old_byol(method: Method, batch: Batch) -> Tensor:
    p1, p2 = (method.predictor(z) for z in projections(method, batch))
    with torch.no_grad():
        t1, t2 = (method.target(x) for x in batch.views)
    return cosine_regression(p1, t2) + cosine_regression(p2, t1)


def old_simsiam(method: Method, batch: Batch) -> Tensor:
    z1, z2 = projections(method, batch)
    p1, p2 = method.predictor(z1), method.predictor(z2)
    return (cosine_regression(p1, z2.detach()) + cosine_regression(p2, z1.detach())) / 4 - 1


def old_moco_v3(method: Method, batch: Batch) -> Tensor:
    q1, q2 = (method.predictor(z) for z in projections(method, batch))
    with torch.no_grad():
        k1, k2 = (method.key_network(x) for x in batch.views)
    t: float = method.temperature
    both = info_nce(q1, k2, temperature=t, ids=batch.ids) + info_nce(q2, k1, temperature=t, ids=batch.ids)
    return 2 * t * both


def old_nnclr(method: Method, batch: Batch) -> Tensor:
    z1, z2 = projections(method, batch)
    p1, p2 = method.predictor(z1), method.predictor(z2)
    near1, near2 = method._neighbors(z1.detach()), method._neighbors(z2.detach())
    t: float = method.temperature
    return (info_nce(near1, p2, temperature=t, ids=batch.ids) + info_nce(near2, p1, temperature=t, ids=batch.ids)) / 2


def old_supcon(method: Method, batch: Batch) -> Tensor:
    assert batch.labels is not None
    _, which = batch.ids.unique(return_inverse=True)
    lowest = torch.full((len(batch.ids),), 9).scatter_reduce(0, which, batch.labels, "amin")[which]
    return sup_con(torch.cat(projections(method, batch)), lowest.repeat(2), temperature=method.temperature)


OLD: dict[str, Rule] = {
    "barlow_twins": lambda m, b: barlow_twins(*projections(m, b)),
    "byol": old_byol,
    "byol_a": old_byol,
    "moco": old_moco,
    "moco_v1": old_moco,
    "moco_v3": old_moco_v3,
    "nnclr": old_nnclr,
    "simclr": lambda m, b: nt_xent(*projections(m, b), temperature=m.temperature, ids=b.ids),
    "simclr_v2": lambda m, b: nt_xent(*projections(m, b), temperature=m.temperature, ids=b.ids),
    "simsiam": old_simsiam,
    "supcon": old_supcon,
    "vicreg": lambda m, b: vicreg(*projections(m, b)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OLD)
def test_two_views_give_the_old_loss_and_gradient_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    method, batch = made(name, 2, 0, dtype)
    again = copy.deepcopy(method)
    found, expected = method(batch).loss, OLD[name](again, batch)
    assert torch.equal(found, expected)
    found.backward()
    expected.backward()
    for (key, a), b in zip(method.named_parameters(), again.parameters(), strict=True):
        assert (a.grad is None and b.grad is None) or torch.equal(a.grad, b.grad), key
    for (key, a), b in zip(method.named_buffers(), again.buffers(), strict=True):
        assert torch.equal(a, b) or a.isnan().all(), key


def test_one_view_of_instdisc_is_the_old_loss() -> None:
    method, batch = made("instdisc", 1, 0, torch.float32)
    again = copy.deepcopy(method)
    v = again.projector(again.encoder(batch.views[0]))
    bank, drawn = again.bank, again.bank.noise(24)
    noise = bank.rows[drawn]
    expected = nce(
        v,
        bank.read(batch.index),
        noise,
        temperature=0.07,
        bank_size=64,
        log_normalizer=again.log_normalizer,
        proximal=1.0,
        ids=batch.ids,
        noise_ids=again._known_ids(batch.index, batch.ids)[drawn],
    )
    assert torch.equal(method(batch).loss, expected)


def test_old_rules_are_there_for_each_method() -> None:
    assert {*OLD, *LATER, "instdisc"} == set(MANY)


# More views: loops over pairs of what `encode` gave.


def of(encoded: Encoded, name: str) -> list[Tensor]:
    """Those of the full views, then those of the local ones."""
    return from_names(encoded, name).every


def full_of(encoded: Encoded, name: str) -> int:
    return len(from_names(encoded, name).full)


def other_pairs(encoded: Encoded, name: str) -> list[tuple[int, int]]:
    """(a, b) of each view with each other full one."""
    return [(a, b) for a in range(len(of(encoded, name))) for b in range(full_of(encoded, name)) if a != b]


def mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean()


def loop_simclr(m: Method, e: Encoded) -> Tensor:
    z = from_names(e, "z")
    return nt_xent_views_reference(z.full, z.local, m.temperature, e["ids"]).mean()


def loop_barlow_twins(m: Method, e: Encoded) -> Tensor:
    z, full = of(e, "z"), full_of(e, "z")
    return mean([barlow_twins_reference(z[a], z[b]) for a, b in combinations(range(len(z)), 2) if a < full])


def loop_vicreg(m: Method, e: Encoded) -> Tensor:
    z = from_names(e, "z")
    return vicreg_views_reference(z.full, z.local)


def loop_byol(m: Method, e: Encoded) -> Tensor:
    p, t = of(e, "p"), of(e, "t")
    return 2 * mean([cosine_regression_reference(p[a], t[b]).mean() for a, b in other_pairs(e, "p")])


def loop_simsiam(m: Method, e: Encoded) -> Tensor:
    p, z = of(e, "p"), of(e, "z")
    targets = [mean_target(z, i) for i in range(len(p))]
    return mean([-reference.cosine(a, b).mean() for a, b in zip(p, targets, strict=True)])


def mean_target(z: list[Tensor], i: int) -> Tensor:
    return torch.stack([x for j, x in enumerate(z) if j != i]).mean(0)


def loop_moco(m: Method, e: Encoded) -> Tensor:
    queries = [x for name, x in e.items() if name.startswith("q")]
    keys, ids = m.queue.keys(), m.queue.ids()
    t: float = m.temperature
    return mean([info_nce_reference(q, e["k"], keys, t, e["ids"], ids).mean() for q in queries])


def loop_moco_v3(m: Method, e: Encoded) -> Tensor:
    q, k, t = of(e, "q"), of(e, "k"), m.temperature
    pairs = other_pairs(e, "q")
    return 4 * t * mean([info_nce_reference(q[a], k[b], None, t, e["ids"]).mean() for a, b in pairs])


def loop_nnclr(m: Method, e: Encoded) -> Tensor:
    z, p, t = of(e, "z"), of(e, "p"), m.temperature
    keys = m.queue.keys()
    near = [keys[(F.normalize(x, dim=1) @ keys.T).argmax(1)] for x in z]
    pairs = other_pairs(e, "p")
    return mean([info_nce_reference(near[b], p[a], None, t, e["ids"]).mean() for a, b in pairs])


def loop_supcon(m: Method, e: Encoded) -> Tensor:
    labels = e["labels"].clone()
    labels[-1] = labels[0] = min(labels[0], labels[-1])  # the two with one id
    z = of(e, "z")
    return sup_con_reference(torch.cat(z), labels.repeat(len(z)), m.temperature).mean()


def loop_instdisc(m: Method, e: Encoded) -> Tensor:
    views = [x for name, x in e.items() if name.startswith("v")]
    bank, drawn = m.bank, m.bank.noise(24)
    known = m._known_ids(e["index"], e["ids"])[drawn]
    memory, noise = bank.read(e["index"]), bank.rows[drawn]
    settings = {"temperature": 0.07, "bank_size": 64, "log_normalizer": m.log_normalizer, "proximal": 1.0}
    return mean([nce(v, memory, noise, **settings, ids=e["ids"], noise_ids=known) for v in views])


def cross_entropies(targets: list[Tensor], scores: list[Tensor], temperature: float) -> Tensor:
    """Of each target with the scores of every other view, in plain softmaxes."""
    each = []
    for i, target in enumerate(targets):
        for j, s in enumerate(scores):
            if i != j:
                each.append(-(target * (s / temperature).softmax(1).log()).sum(1).mean())
    return mean(each)


def loop_swav(m: Method, e: Encoded) -> Tensor:
    w = F.normalize(m.prototypes.weight, dim=1)
    scores = [F.normalize(z, dim=1) @ w.T for z in of(e, "z")]
    codes = []
    for s in scores[: full_of(e, "z")]:
        q = (s.detach() / m.epsilon).exp()
        for _ in range(m.iterations):
            q = q / q.sum(0)
            q = q / q.sum(1, keepdim=True)
        codes.append(q)
    return cross_entropies(codes, scores, m.temperature)


def loop_dino(m: Method, e: Encoded) -> Tensor:
    student, teacher = (F.normalize(x.weight, dim=1) for x in (m.prototypes, m.target[2]))
    scores = [F.normalize(z, dim=1) @ student.T for z in of(e, "z")]
    taught = [F.normalize(t, dim=1) @ teacher.T for t in of(e, "t")]
    return cross_entropies(
        [((t - m.center) / m.teacher_temperature).softmax(1).detach() for t in taught], scores, m.temperature
    )


def loop_diet(m: Method, e: Encoded) -> Tensor:
    return e["loss"].mean()


LOOPS: dict[str, Callable[[Method, Encoded], Tensor]] = {
    "barlow_twins": loop_barlow_twins,
    "byol": loop_byol,
    "byol_a": loop_byol,
    "diet": loop_diet,
    "dino": loop_dino,
    "instdisc": loop_instdisc,
    "moco": loop_moco,
    "moco_v1": loop_moco,
    "moco_v3": loop_moco_v3,
    "nnclr": loop_nnclr,
    "simclr": loop_simclr,
    "simclr_v2": loop_simclr,
    "simsiam": loop_simsiam,
    "supcon": loop_supcon,
    "swav": loop_swav,
    "vicreg": loop_vicreg,
}


@pytest.mark.parametrize(("full", "local"), NUMBERS)
@pytest.mark.parametrize("name", MANY)
def test_the_loss_is_that_of_loops_over_pairs(name: str, full: int, local: int) -> None:
    method, batch = made(name, full, local)
    found = []
    for rule in (lambda m, e: m.contrast(e).loss, LOOPS[name]):
        encoded = {
            key: x.detach().requires_grad_(key != "labels" and x.is_floating_point())
            for key, x in method.encode(batch).items()
        }
        loss = rule(method, encoded)
        wanted = [x for key, x in encoded.items() if x.requires_grad and not key.startswith(("t", "k", "h"))]
        if name in ("simsiam", "nnclr"):
            wanted = [x for key, x in encoded.items() if key.startswith("p")]
        found.append((loss.detach(), *torch.autograd.grad(loss, wanted)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("full", "local"), NUMBERS)
@pytest.mark.parametrize("name", MANY)
def test_training_lowers_the_loss_of_a_fixed_batch(name: str, full: int, local: int) -> None:
    method, batch = made(name, full, local, torch.float32)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.01)
    losses = []
    for _ in range(12):
        loss = method.contrast(method.encode(batch)).loss  # without after_step: the task stays the same
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-3:]) < sum(losses[:3])


@pytest.mark.parametrize("name", MANY)
def test_what_a_step_reports(name: str) -> None:
    method, batch = made(name, 4, 2)
    step, rows = method(batch), len(batch.index)
    assert step.z1.shape == step.z2.shape and len(step.z1) == rows and not step.z1.requires_grad
    candidates = {"moco_v3": rows, "nnclr": rows, "moco": 13, "moco_v1": 13, "supcon": 6 * rows - 1}
    candidates |= dict.fromkeys(("simclr", "simclr_v2"), 4 * (rows - 1) + 1)  # one positive, all views of the others
    assert step.candidates == candidates.get(name, 0)


# Encoding


class Counting(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.rows = network, list[tuple[int, ...]]()

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(tuple(x.shape))
        y: Tensor = self.network(x)
        return y


def test_full_views_pass_one_by_one_and_local_ones_of_a_size_together() -> None:
    network = Counting(ToyImageEncoder(0.0).train())
    local = [torch.randn(5, 3, 4, 4), torch.randn(5, 3, 5, 5), torch.randn(5, 3, 4, 4)]
    views = Views([torch.randn(5, 3, 6, 6) for _ in range(3)], local)
    encoded = encode_views(network, views)
    assert network.rows == [(5, 3, 6, 6)] * 3 + [(10, 3, 4, 4), (5, 3, 5, 5)]
    again = copy.deepcopy(network.network)
    small = again(torch.cat([local[0], local[2]]))
    assert torch.equal(torch.cat([encoded.local[0], encoded.local[2]]), small)
    assert torch.equal(encoded.local[1], again(local[1])) and torch.equal(encoded.full[2], again(views.full[2]))


def test_names_of_views_and_their_pairs() -> None:
    views = Views(list(torch.arange(3)), list(torch.arange(2)))
    assert list(by_name("z", views)) == ["z1", "z2", "z3", "z_local1", "z_local2"]
    assert from_names({**by_name("z", views), "zebra": torch.ones(1)}, "z") == views
    assert pairs_of(2, 1) == [(0, 1), (1, 0), (2, 0), (2, 1)]
    batch = Batch(list(torch.ones(5, 2)), torch.arange(2), torch.arange(2), local=2)
    assert len(batch.full_views) == 3 and len(batch.local_views) == 2
    assert len(replace(batch, local=0).full_views) == 5 and not replace(batch, local=0).local_views


# What is particular to a method


def test_more_views_of_simsiam_are_fastsiam() -> None:
    """As the loop of lightly's example: each prediction against the mean of the other projections."""
    from nearfar import _torchvision  # noqa: F401, before lightly

    loss = pytest.importorskip("lightly.loss").NegativeCosineSimilarity()
    method, batch = made("simsiam", 4, 0)
    encoded = method.encode(batch)
    p, z = torch.stack(of(encoded, "p")), torch.stack(of(encoded, "z"))
    expected = sum(loss(p[i], z[torch.arange(4) != i].mean(0)) / 4 for i in range(4))
    torch.testing.assert_close(method.contrast(encoded).loss, expected)


def test_moco_queues_the_second_view_alone() -> None:
    method, batch = made("moco", 4, 2)
    encoded = method.encode(batch)
    assert [name for name in encoded if name.startswith("q")] == ["q", "q3", "q4", "q5", "q6"]
    before = len(method.queue)
    method.contrast(encoded)
    method.after_step(0.5)
    assert len(method.queue) == before + len(batch.index)
    torch.testing.assert_close(method.queue.keys()[before:], F.normalize(encoded["k"], dim=1))


def test_memories_of_instdisc_move_to_the_mean_of_the_views() -> None:
    method, batch = made("instdisc", 2, 1)
    encoded = method.encode(batch)
    before = method.bank.rows.clone()
    method.contrast(encoded)
    method.after_step(0.5)
    views = [F.normalize(encoded[name], dim=1) for name in ("v", "v2", "v3")]
    moved = F.normalize((before[batch.index] + F.normalize(torch.stack(views).mean(0), dim=1)) / 2, dim=1)
    torch.testing.assert_close(method.bank.rows[batch.index], moved)


def test_views_of_instdisc_share_the_noise_of_their_sample() -> None:
    method, (batch, _) = with_more_views(METHODS["instdisc"].toy(noise_per_sample=True), 2, 1)
    method = method.double().train()
    encoded = method.encode(batch)
    views = [x for name, x in encoded.items() if name.startswith("v")]
    memory, noise = method.bank.read(encoded["index"]), method.bank.rows[method.bank.noise(12, 24)]
    drawn = torch.cat([memory[:, None], noise], 1)  # (12, 25, D)
    z = mean([(64 * (F.normalize(v) @ u.T / 0.07).exp()).diagonal() for u in drawn.unbind(1) for v in views]).mean()
    settings = {"temperature": 0.07, "bank_size": 64, "log_normalizer": z.detach().log(), "proximal": 1.0}
    step = method.contrast(encoded)
    torch.testing.assert_close(step.loss, mean([nce(v, memory, noise, **settings) for v in views]), rtol=1e-6, atol=0)


def test_the_normalizer_of_instdisc_is_estimated_on_all_views() -> None:
    method, (batch, _) = with_more_views(METHODS["instdisc"].toy(), 2, 1)
    encoded = method.double().encode(in_dtype(batch, torch.float64))
    queries = torch.cat([encoded[name] for name in ("v", "v2", "v3")])
    noise = method.bank.rows[method.bank.noise(24)]
    expected = estimate_log_normalizer(queries, noise, temperature=0.07, bank_size=64)
    torch.testing.assert_close(method.contrast(encoded).log["log_normalizer"], expected)


def test_a_sentence_is_read_several_times() -> None:
    torch.manual_seed(0)
    method = SimCSE(toy_text_encoder(), features=16).double().train()
    tokens = torch.randint(4, 40, (5, 8))
    ids = torch.arange(5)
    encoded = method.encode(Batch([tokens] * 3, ids, ids, negatives=0))
    assert list(encoded) == ["z1", "z2", "more1", "ids"]
    z = [encoded[name] for name in ("z1", "z2", "more1")]
    pairs = [info_nce_reference(z[a], z[b], None, 0.05, ids).mean() for a, b in ((0, 1), (0, 2), (1, 2))]
    step = method.contrast(encoded)
    torch.testing.assert_close(step.loss, mean(pairs))
    assert step.candidates == 5
    third = method.encode(Batch([tokens] * 3, ids, ids))  # without a word about it, the third contradicts
    assert "z3" in third and "more1" not in third
    both = method.encode(Batch([tokens] * 4, ids, ids, negatives=1))
    assert {"z1", "z2", "more1", "z3", "texts"} <= both.keys()
    assert method.contrast(both).candidates == 10
    two = method.encode(Batch([tokens] * 4, ids, ids, negatives=2))
    assert {"z1", "z2", "z3", "z4", "texts"} <= two.keys() and two["texts"].shape == (5, 4)
    assert method.contrast(two).candidates == 15


def test_check_certifies_many_views_of_each_method_and_the_options_of_its_paper() -> None:
    names = [subject.name for subject in toy_subjects()]
    papers = {f"{name}, paper" for name, kind in METHODS.items() if "options" in kind.paper}
    more = {f"{name}, {words}" for name, kind in METHODS.items() for words in kind.more_toys()}
    assert set(names) == {*METHODS, *papers, *more, *(f"{name}, 3+2 views" for name in MANY), "simcse, 3 views"}
    assert {"pairs, guide and hard negatives", "clip, nested", "clip, guide", "siglip, nested"} <= more


def test_a_method_from_outside_has_two_views_unless_it_says_more() -> None:
    assert (Method.max_views, Method.max_local) == (2, 0)
    assert (SimCLR.max_views, SimCLR.max_local) == (None, None)
