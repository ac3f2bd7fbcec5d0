"""Colors without places."""

import torch

from nearfar.modalities.image.color_histogram import BINS, ColorHistogram


def features(images: torch.Tensor) -> torch.Tensor:
    baseline = ColorHistogram()
    return baseline(baseline.prepare(images))


def test_places_do_not_count_and_colors_do() -> None:
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    shuffled = images.flatten(2)[:, :, torch.randperm(256, generator=torch.Generator().manual_seed(1))]
    found = features(images)
    torch.testing.assert_close(found, features(shuffled.unflatten(2, (16, 16))))
    torch.testing.assert_close(found.square().sum(1), torch.ones(2))
    red, blue = torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    red[:, 0], blue[:, 2] = 255, 255
    assert float((features(red) * features(blue)).sum()) == 0


def test_it_is_a_plain_count_of_cells() -> None:
    images = torch.randint(0, 256, (1, 3, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    counts = torch.zeros(BINS, BINS, BINS)
    for row in range(5):
        for column in range(5):
            r, g, b = (min(int(v) * BINS // 255, BINS - 1) for v in images[0, :, row, column])
            counts[r, g, b] += 1
    torch.testing.assert_close(features(images)[0], (counts / 25).sqrt().flatten())
