"""Processes that share a batch make the views that one would make of all of it."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nearfar.modalities.image.views.presets import PRESETS, make_views
from nearfar.modalities.series.views import SERIES_PRESETS, make_series_views
from nearfar.modalities.sound.logmel import LogMel
from nearfar.modalities.sound.presets import SOUND_PRESETS
from nearfar.modalities.sound.views import make_sound_views
from nearfar.nn.masking import mask_tokens
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.shard import Shard

SIZES = (4, 0, 3)


def shared(make: Callable[[slice, Shard], list[Tensor]]) -> list[Tensor]:
    """The views of each part, put together; each part is a thread, and they gather as processes do."""
    meeting = threading.Barrier(len(SIZES))
    given: list[Tensor] = [torch.empty(0)] * len(SIZES)
    made: list[list[Tensor]] = [[] for _ in SIZES]

    class ThreadShard(Shard):
        def gather(self, x: Tensor) -> Tensor:
            given[self.rank] = x
            meeting.wait(timeout=30)
            every = torch.cat(given)
            meeting.wait(timeout=30)
            return every

    def work(rank: int) -> None:
        shard = ThreadShard(rank, SIZES)
        made[rank] = make(slice(shard.first, shard.first + shard.count), shard)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(SIZES))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [torch.cat(parts) for parts in zip(*made, strict=True)]


def assert_alike(parts: list[Tensor], whole: list[Tensor]) -> None:
    for part, one in zip(parts, whole, strict=True):
        torch.testing.assert_close(part, one, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", ["simclr", "byol", "shapes"])
def test_images(name: str) -> None:
    images = torch.randint(256, (sum(SIZES), 3, 20, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    recipes = PRESETS[name](16)
    whole = make_views(images, recipes, seed=1, step=2)
    made = [
        make_views(images[a:b], recipes, seed=1, step=2, shard=Shard(rank, (4, 3)))
        for rank, (a, b) in enumerate(((0, 4), (4, 7)))
    ]
    assert_alike([torch.cat(views) for views in zip(*made, strict=True)], whole)


@pytest.mark.parametrize("name", SERIES_PRESETS)
def test_series(name: str) -> None:
    x = torch.randn(sum(SIZES), 2, 30, generator=torch.Generator().manual_seed(0))
    x[2, :, 20:] = torch.nan
    views = SERIES_PRESETS[name]()
    whole = make_series_views(x, views, seed=1, step=2)
    assert_alike(shared(lambda rows, shard: make_series_views(x[rows], views, seed=1, step=2, shard=shard)), whole)


@pytest.mark.parametrize("name", SOUND_PRESETS)
def test_sounds_mix_with_those_of_other_processes(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    waves = torch.randint(-9000, 9000, (sum(SIZES), 1200), generator=generator).to(torch.int16)
    waves[1, 700:] = -32768
    views = SOUND_PRESETS[name](
        800, LogMel(8000, window=256, hop=80, n_mels=16, f_min=60, f_max=3900), mean=-5.0, std=4.0
    )
    whole = make_sound_views(waves, views, seed=1, step=2)
    assert_alike(shared(lambda rows, shard: make_sound_views(waves[rows], views, seed=1, step=2, shard=shard)), whole)


def test_masked_words_depend_on_no_other_text() -> None:
    tokens = torch.randint(4, 30, (6, 9), generator=torch.Generator().manual_seed(0))

    def masked(rows: list[int]) -> tuple[Tensor, Tensor]:
        generators = [seeded_generator(5, row, 0) for row in rows]
        return mask_tokens(tokens[rows], vocab_size=30, mask=3, special=(0, 1, 2, 3), generator=generators, rate=0.5)

    whole, parts = masked([0, 1, 2, 3, 4, 5]), [masked([4, 1]), masked([0, 2, 3, 5])]
    for i in range(2):
        assert torch.equal(whole[i][[4, 1]], parts[0][i]) and torch.equal(whole[i][[0, 2, 3, 5]], parts[1][i])
    assert 0.3 < whole[1].float().mean() < 0.7
