"""Several processes with a share of the batch each compute what one does with all of it."""

import copy
import itertools

import pytest
import torch
from torch import nn

from nearfar.distributed.certificate import certify_methods
from nearfar.distributed.processes import ProcessError, run_in_processes
from nearfar.distributed.variants import Subject
from nearfar.methods import METHODS
from nearfar.nn.text import LEAST_GROUP, TextEncoder, length_groups
from tests.distributed import chunks, work
from tests.support.facts import facts, tells


def subjects(names: list[str]) -> list[Subject]:
    return [Subject(name, *METHODS[name].toy()) for name in names]


KINDS = ["simclr", "moco", "instdisc", "byol_a"]  # the batch alone, groups and a queue, a bank, a momentum network


@pytest.mark.parametrize(
    ("names", "processes"),
    [(KINDS, 3), pytest.param(sorted(METHODS), 4, marks=pytest.mark.slow)],
    ids=["one of each kind", "every method"],
)
def test_several_processes_train_as_one(names: list[str], processes: int) -> None:
    """Loss, gradient, queue, bank, momentum network and batch-norm's statistics: even, uneven, one without rows, and
    weights in chunks."""
    seen = 0
    for rows in certify_methods(subjects(names), processes=processes):
        shared = [row for row in rows if row.variant.startswith(("gather", "ring", "fsdp"))]
        assert all(row.passed for row in shared), [row for row in shared if not row.passed]
        seen += len(shared)
    assert seen == 4 * len(names) + 2 * sum(METHODS[name].ring for name in names)


def test_what_two_processes_put_together() -> None:
    """In one start: kinds of tensors, uneven and empty shares, batch-norm, ring, weights in chunks."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4))
    network = network.double()
    x, weight = torch.randn(7, 2, 3, 3, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    given = [(sizes, copy.deepcopy(network), x, weight) for sizes in ([4, 3], [6, 1], [7, 0])]
    every = run_in_processes(2, many_things, given)
    for found in every:  # the same on both
        for sizes, kinds in found["kinds"]:
            whole = [torch.arange(12).view(6, 2), torch.arange(6) % 2 == 0, torch.arange(18).view(6, 1, 3).half()]
            assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(kinds, whole, strict=True)), sizes
        for sizes, seen in found["norm"]:
            for name, value in alone(copy.deepcopy(network), x, weight).items():
                torch.testing.assert_close(seen[name], value, rtol=1e-10, atol=1e-12, msg=f"{sizes} {name}")
        for sizes, (in_parts, in_one_graph) in found["cached"]:
            assert len(in_parts) == len(in_one_graph) > len(list(network.parameters()))
            for a, b in zip(in_parts, in_one_graph, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=str(sizes))
        for sizes, seen in found["ring"]:
            for loss in work.LOSSES:
                ring_is_gather_is_one(loss, seen, sum(sizes))
        assert tells(found["empty"], "process 1 rows")
    chunks.assert_trained_alike([found["parts"] for found in every])
    chunks.assert_parts_held([found["parts"] for found in every])


def many_things(given: list[tuple], say: object) -> dict[str, object]:
    return {
        "kinds": [(sizes, work.gathered_kinds(sizes, say)) for sizes in ([3, 3], [5, 1], [0, 6])],
        "norm": [(sizes, work.normalised(net, x, weight, sizes, say)) for sizes, net, x, weight in given],
        "cached": [(sizes, work.cached(net, x, weight, sizes, say)) for sizes, net, x, weight in given[:2]],
        "ring": [(sizes, work.ring_and_gather(sizes, say)) for sizes in ([4, 4], [7, 2])],
        "empty": work.ring_with_no_rows(say),
        "parts": chunks.both_ways(chunks.CASES, say),
    }


def alone(network: nn.Module, x: torch.Tensor, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    x = x.clone().requires_grad_()
    y = network(x)
    (y * weight).sum().backward()
    assert x.grad is not None
    found = {"y": y.detach(), "x": x.grad}
    return found | {n: p.grad for n, p in network.named_parameters()} | dict(network.named_buffers())  # type: ignore


def ring_is_gather_is_one(loss: str, seen: dict, total: int) -> None:
    z1, z2, ids = work.rows(total)
    z1.requires_grad_(), z2.requires_grad_()
    t = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    value = work.LOSSES[loss](z1, z2, t, ids)
    value.backward()
    truth = [value.detach(), z1.grad, z2.grad, t.grad]
    for way, expected in itertools.product(("gather", "ring"), [truth]):
        for a, b in zip(seen[loss, way], expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=f"{loss} {way}")


def fails(say: object) -> None:
    raise ValueError("something is wrong\nwith it")


def test_texts_are_grouped_by_length_over_all_processes() -> None:
    """So that dropout is that of one process, whatever rows are where."""
    torch.manual_seed(0)
    encoder = TextEncoder(50, 40, width=16, layers=1, heads=2, dropout=0.3).double().train()
    lengths = torch.randint(1, 41, (96, 1))
    tokens = torch.randint(4, 50, (96, 40)).masked_fill(torch.arange(40) >= lengths, 0)
    assert length_groups(lengths[:, 0], LEAST_GROUP).max() > 0
    torch.manual_seed(3)
    expected = encoder(tokens)
    for sizes in ([50, 46], [96, 0]):
        for found in run_in_processes(2, work.grouped_texts, sizes, tokens, encoder):
            torch.testing.assert_close(found, expected.detach(), rtol=1e-10, atol=1e-12)


def test_a_process_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(ProcessError, match=facts("process 0 1 test_many_processes.py:")):
        run_in_processes(1, fails)
