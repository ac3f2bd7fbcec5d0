"""The order is a pure function of (seed, epoch), and fetching ahead changes nothing of it."""

import numpy as np
import pytest
import torch

from nearfar.data.dataset import ArrayDataset
from nearfar.data.loader import Loader
from tests.support.facts import facts


def numbered(n: int) -> ArrayDataset:
    """n 2×2 images, each filled with its own number."""
    return ArrayDataset(np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None, None], (n, 2, 2, 3)).copy())


def test_order_depends_on_seed_and_epoch_alone() -> None:
    a, b = Loader(50, 7, seed=3), Loader(50, 10, seed=3, drop_last=False)
    torch.rand(5)  # the global generator plays no part
    assert torch.equal(a.order(4), b.order(4))
    assert not torch.equal(a.order(4), a.order(5))
    assert not torch.equal(a.order(4), Loader(50, 7, seed=4).order(4))
    assert not torch.equal(Loader(50, 7, seed=3).order(4), Loader(50, 7, seed=4).order(3))


def test_order_stays_what_it_was() -> None:
    assert Loader(8, 2, seed=1).order(2).tolist() == [3, 5, 1, 4, 0, 2, 6, 7]


@pytest.mark.parametrize("drop_last", [True, False])
def test_every_sample_once_an_epoch(drop_last: bool) -> None:
    loader = Loader(23, 5, seed=0, drop_last=drop_last)
    seen = torch.cat([indices for _, indices in loader.batches(epoch=1)])
    assert len(seen.unique()) == len(seen) == (20 if drop_last else 23)
    assert len(list(loader.batches(1))) == len(loader)


@pytest.mark.parametrize("start", [0, 1, 3, 4])
def test_resumes_at_any_step(start: int) -> None:
    loader = Loader(23, 5, seed=0)
    whole = [(step, indices.tolist()) for step, indices in loader.batches(epoch=6)]
    assert [(step, indices.tolist()) for step, indices in loader.batches(epoch=6, start=start)] == whole[start:]


@pytest.mark.parametrize("ahead", [0, 1, 2, 9])
def test_fetched_images_are_those_of_the_indices(ahead: int) -> None:
    loader = Loader(23, 5, seed=0)
    batches = list(loader.fetched(numbered(23), epoch=2, start=1, ahead=ahead))
    assert [batch.step for batch in batches] == [1, 2, 3]
    for batch, (_, indices) in zip(batches, loader.batches(2, start=1), strict=True):
        assert torch.equal(batch.indices, indices)
        assert batch.x.shape == (5, 3, 2, 2)
        assert torch.equal(batch.x[:, 1, 0, 1].long(), indices)


def test_processes_share_one_global_batch() -> None:
    loader = Loader(24, 8, seed=0)
    parts = [list(loader.fetched(numbered(24), 0, rank=rank, world=4)) for rank in range(4)]
    for step, indices in loader.batches(0):
        assert torch.equal(torch.cat([part[step].indices for part in parts]), indices)


def test_an_error_in_the_background_reaches_the_caller() -> None:
    class Broken(ArrayDataset):
        def fetch(self, indices: torch.Tensor) -> torch.Tensor:
            raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        list(Loader(4, 2, seed=0).fetched(Broken(np.zeros((4, 2, 2, 3), np.uint8)), 0))


def test_leaving_early_ends_the_thread() -> None:
    batches = Loader(100, 2, seed=0).fetched(numbered(100), 0)
    next(iter(batches))
    batches.close()  # type: ignore[attr-defined]  # a generator


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((3, 4, 0), "3 4"), ((3, 0, 0), "batch_size 0"), ((3, 1, -1), "seed -1")],
)
def test_refuses_in_one_line(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=facts(message)) as error:
        Loader(*arguments)
    assert "\n" not in str(error.value)
