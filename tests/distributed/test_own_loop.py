"""A loop of one's own on several processes trains as one process, by gathered rows and by a ring; forgetting warns."""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_functional
from torch import Tensor, nn

from nearfar import losses
from nearfar.adapters import lightly
from nearfar.distributed import Shard, contrast_shards, gather_rows, ring, shard_of
from nearfar.distributed.processes import run_in_processes
from nearfar.losses.engine import gathered
from nearfar.methods import METHODS
from tests.distributed import work
from tests.support.facts import facts, tells

SIZES = [4, 3]
LABELS = torch.tensor([0, 1, 0, 2, 1, 1, 2])


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)).double()


def by_gathering(z1: Tensor, z2: Tensor, labels: Tensor) -> Tensor:
    z1, z2, labels = gather_rows(z1), gather_rows(z2), gather_rows(labels)
    return losses.nt_xent(z1, z2, temperature=0.2) + losses.sup_con(z1, labels, temperature=0.3)


def by_ring(z1: Tensor, z2: Tensor, labels: Tensor) -> Tensor:
    clip = ring(losses.symmetric_info_nce, z1, z2, temperature=0.2)
    three = ring(losses.nt_xent_views, [z1, z2, z1 + z2], temperature=0.5)
    return clip + three + ring(losses.decoupled, z1, z2, temperature=1)


LOOPS = {"gather_rows": by_gathering, "ring": by_ring}


def step(loss: Any, model: nn.Module, x1: Tensor, x2: Tensor, labels: Tensor) -> list[Tensor]:
    z1, z2 = model(torch.cat([x1, x2])).chunk(2)
    value = loss(z1, z2, labels)
    value.backward()
    return [value.detach(), *(p.grad for p in model.parameters())]


def on_each_process(say: Any) -> dict[str, Any]:
    shard = Shard(dist.get_rank(), tuple(SIZES))
    x1, x2, _ = work.rows(sum(SIZES))
    own = shard.select(x1), shard.select(x2), shard.select(LABELS)
    found: dict[str, Any] = {"shard": shard_of(shard.count) == shard}
    for name, loss in LOOPS.items():
        found[name] = step(loss, nn.parallel.DistributedDataParallel(network()), *own)
    found["warnings"] = {name: told(act) for name, act in WARN.items()}
    found["silent"] = {name: told(act) for name, act in SILENT.items()}
    try:
        ring(losses.sup_con, x1, LABELS, temperature=0.1)
    except ValueError as error:
        found["refused"] = str(error)
    return found


def told(act: Any) -> list[str]:
    """What two steps warn of, in a process that has gathered nothing yet."""
    gathered._Known.done = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            act(torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True))
    return [str(w.message) for w in caught if w.category is UserWarning]


def through_a_method(a: Tensor, b: Tensor) -> None:
    method, batches = METHODS["simclr"].toy()
    method = method.double()
    contrast_shards(method, method.encode(batches[0]), shard_of(len(batches[0].ids)))


def gathered_by_torch(a: Tensor, b: Tensor) -> Tensor:
    a, b = (torch.cat(dist_functional.all_gather(x)) for x in (a, b))
    return losses.nt_xent(a * 2, b.clone(), temperature=0.1)


ONES = torch.ones(4, dtype=torch.long)
WARN = {
    "nt_xent": lambda a, b: losses.nt_xent(a, b, temperature=0.1),
    "decoupled with ids": lambda a, b: losses.decoupled(a, b, temperature=0.1, ids=torch.arange(4)),
    "nt_xent_views": lambda a, b: losses.nt_xent_views([a, b, a], temperature=0.1),
    "symmetric_info_nce": lambda a, b: losses.symmetric_info_nce(a, b, temperature=0.1),
    "sigmoid_pairs": lambda a, b: losses.sigmoid_pairs(a, b, logit_scale=10, logit_bias=-10),
    "sup_con": lambda a, b: losses.sup_con(a, ONES, temperature=0.1),
    "barlow_twins": losses.barlow_twins,
    "vicreg": losses.vicreg,
    "batch_triplet": lambda a, b: losses.batch_triplet(a, ONES, margin=1.0),
    "cosent": lambda a, b: losses.cosent(a, b, torch.arange(4), temperature=0.1),
    "an adapter": lambda a, b: lightly.NTXentLoss()(a, b),
}
SILENT = {
    "gather_rows": lambda a, b: losses.nt_xent(gather_rows(a), gather_rows(b), temperature=0.1),
    "ring": lambda a, b: ring(losses.nt_xent, a, b, temperature=0.1),
    "the trainer's step": through_a_method,
    "a gather of torch": gathered_by_torch,
    "an adapter that gathers": lambda a, b: lightly.NTXentLoss(gather_distributed=True)(a, b),
    "rows with a queue": lambda a, b: losses.info_nce(a, b, torch.randn(9, 3), temperature=0.1),
    "rows on their own": losses.cosine_regression,
    "no gradient": lambda a, b: losses.nt_xent(a.detach(), b.detach(), temperature=0.1),
}


def test_two_processes_of_ones_own_train_as_one() -> None:
    x1, x2, _ = work.rows(sum(SIZES))
    every = run_in_processes(2, on_each_process)
    for name, loss in LOOPS.items():
        expected = step(loss, copy.deepcopy(network()), x1, x2, LABELS)  # one process: gather_rows and ring do nothing
        for found in every:
            for a, b in zip(found[name], expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=name)
    for found in every:
        assert found["shard"]
        for name, messages in found["warnings"].items():
            assert len(messages) == 1, name
            assert tells(messages[0], "1 process of 2 gather_rows ring") and "\n" not in messages[0]
        assert not any(found["silent"].values()), found["silent"]
        assert tells(found["refused"], "sup_con ids gather_rows")


def test_a_ring_takes_the_mean_only() -> None:
    with pytest.raises(ValueError, match=facts("reduction 'sum' 'mean'")):
        ring(losses.nt_xent, torch.eye(3), torch.eye(3), temperature=1.0, reduction="sum")


@pytest.mark.slow  # each start of processes takes seconds; two and three are in the quick tests
@pytest.mark.parametrize("sizes", [[3, 1, 2, 4], [2, 2, 1, 3, 1]])
def test_more_processes_by_ring(sizes: list[int]) -> None:
    from tests.distributed.test_many_processes import ring_is_gather_is_one

    for found in run_in_processes(len(sizes), work.ring_and_gather, sizes):
        for loss in work.LOSSES:
            ring_is_gather_is_one(loss, found, sum(sizes))
