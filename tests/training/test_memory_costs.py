"""The arithmetic of `nearfar plan`."""

import pytest
import torch
from torch import nn

from nearfar.training.memory_costs import Costs, LinearCost, LiveBytes, choose, line, measured_line
from tests.support.facts import facts

MB = 10**6


def straight(fixed: int, per_row: int) -> LinearCost:
    return line(1, [fixed + per_row], 2, [fixed + 2 * per_row])


def costs(**changed: object) -> Costs:
    """10 MB for each row of activations, 0.01 MB for each of embeddings."""
    given = {
        "process": 500 * MB,
        "gradients": 20 * MB,
        "optimizer": 40 * MB,
        "sample": 3000,
        "forward": straight(0, 10 * MB),
        "backward": straight(20 * MB, 10 * MB),
        "encoded": 10_000,
        "contrast": straight(MB, 40_000),
        "views": straight(0, 25_000),
        "viewed_in_parts": True,
        "readout": 100 * MB,
    }
    return Costs(**(given | changed))  # type: ignore[arg-type]


def test_live_bytes_of_a_step_are_counted_by_hand() -> None:
    layer = nn.Linear(8, 8, bias=False)
    x = torch.randn(16, 8)
    with LiveBytes() as held:
        y = layer(x)  # 512 bytes
        z = y.relu()  # 512, and y is not held on
        del y
        z.sum().backward()
    kept = 16 * 8 * 4 + 8 * 8 * 4  # z and the gradient
    assert held.live == kept
    assert max(held.course) >= kept + 16 * 8 * 4  # the gradient of z, too
    del z
    layer.weight.grad = None
    assert held.live == 0


def test_memory_that_was_there_before_is_not_counted() -> None:
    x = torch.zeros(100)
    with LiveBytes() as held:
        x.add_(1)
        x.view(10, 10).mul_(2)
    assert max(held.course) == 0


def test_a_line_tells_what_more_rows_take() -> None:
    network = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 400))

    def work(rows: int):  # type: ignore[no-untyped-def]
        x = torch.randn(rows, 8)
        return lambda: torch.autograd.grad(network(x).square().sum(), list(network.parameters()))

    found = measured_line(work, 4, 8)
    for rows in (2, 100, 1000):
        ready = work(rows)
        with LiveBytes() as held:
            ready()
        assert found.peak(rows) == pytest.approx(max(held.course), rel=1e-6)


def test_what_fits_is_left_in_one_piece() -> None:
    plan = choose(costs(), 8000 * MB, batch=256)
    assert (plan.batch, plan.micro, plan.accumulate, plan.fits) == (256, None, 1, True)
    assert plan.peak.total == costs().peak(256, None).total < 0.9 * 8000 * MB


def test_then_the_largest_micro_batch_that_fits() -> None:
    plan = choose(costs(), 4000 * MB, batch=8192)
    assert (plan.batch, plan.micro, plan.accumulate, plan.fits) == (8192, 256, 1, True)
    assert costs().peak(8192, 512).total > 0.9 * 4000 * MB


def test_then_several_batches() -> None:
    plan = choose(costs(), 1000 * MB, batch=8192)
    assert plan.fits and plan.accumulate == 8192 // plan.batch > 1 and plan.micro is not None
    assert plan.peak.total <= 900 * MB


def test_too_little_is_said() -> None:
    assert not choose(costs(), 300 * MB, batch=64).fits


def test_a_micro_batch_that_is_asked_for_stays() -> None:
    assert choose(costs(), 8000 * MB, batch=1024, micro=32).micro == 32


def test_activations_do_not_grow_with_the_batch_where_it_is_divided() -> None:
    small, large = costs().peak(1024, 64), costs().peak(8192, 64)
    assert large.total - small.total < 0.1 * (costs().peak(8192, None).total - costs().peak(1024, None).total)
    assert costs(viewed_in_parts=False).peak(8192, 64).total > large.total
    assert costs().peak(8192, 64, accumulate=2).total == large.total + 20 * MB


def test_a_large_readout_is_the_peak() -> None:
    assert costs(readout=9000 * MB).peak(64, None).total > 9500 * MB


def test_processes_share_the_batch_and_each_sees_all_embeddings() -> None:
    """Against a quarter of the batch: embeddings of all, and DDP's copy of the gradients, come on top."""
    whole, quarter = costs().peak(256, None, processes=4), costs().peak(64, None)
    assert whole.samples == quarter.samples and whole.views == quarter.views
    assert whole.weights - quarter.weights == 20 * MB
    assert whole.embeddings - quarter.embeddings == 192 * 40_000
    assert costs().peak(256, None, processes=4, ring=True).embeddings - quarter.embeddings == 64 * 40_000
    found = choose(costs(), 900 * MB, batch=256, processes=4)  # 64 rows of 10 MB are too much for a process
    assert found.fits and found.batch == 256 and found.micro is not None and found.micro < 64
    with pytest.raises(ValueError, match=facts("4")):
        choose(costs(), 900 * MB, batch=8, processes=4)
