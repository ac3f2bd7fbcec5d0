"""What a report shows of single samples, against loops and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from nearfar.data.dataset import ArrayDataset
from nearfar.modalities.series.plot import series_pictures
from nearfar.report.projection import principal_components
from nearfar.report.samples import Positives, ReportSamples, take_samples
from nearfar.report.thumbnail_sheet import make_sheet, sheet_side
from tests.support.facts import facts

N, GROUP = 40, 3


def cloud(n: int = N) -> Tensor:
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(0))


def pictures(n: int = N, labels: list[int] | None = None, size: int = 8) -> ArrayDataset:
    images = np.random.default_rng(0).integers(0, 255, (n, size, size, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(n) % 256  # its number
    return ArrayDataset(images, labels=labels, classes=["up", "down"] if labels else None)


def looked(data: ArrayDataset, z: Tensor, **settings: object) -> ReportSamples:
    given = {
        "prepare": lambda x: x[:, 0, 0, 0].long(),
        "pictures": lambda x, side: x.permute(0, 2, 3, 1).contiguous().numpy(),
        "data": "d",
        "split": "test",
        "seed": 0,
    }
    return take_samples(lambda rows: z[rows], data, **(given | settings))  # type: ignore[arg-type]


def test_the_map_is_scikit_learns_pca_up_to_signs() -> None:
    x = cloud()
    ours, share = principal_components(x, 4)
    theirs = PCA(4, svd_solver="full").fit(x.double().numpy())
    np.testing.assert_allclose(ours.abs(), np.abs(theirs.transform(x.double().numpy())), atol=1e-5)
    np.testing.assert_allclose(share, theirs.explained_variance_ratio_, atol=1e-6)
    again, _ = principal_components(-x, 4)
    np.testing.assert_allclose(again, -ours, atol=1e-5)  # signs are chosen by the directions, not by chance
    flat, none = principal_components(torch.ones(5, 1), 4)
    assert flat.shape == (5, 2) and not flat.any() and not none.any()


@pytest.mark.parametrize("labelled", [True, False])
def test_neighbors_and_negatives_are_those_of_loops(labelled: bool) -> None:
    z = cloud()
    labels = [i % 2 for i in range(N)] if labelled else None
    ids = torch.arange(N) // GROUP
    noise = z + 0.4 * torch.randn(z.shape, generator=torch.Generator().manual_seed(1))
    found = looked(pictures(labels=labels), z, ids=ids, positives=lambda rows: Positives(z[rows], noise[rows], False))
    found.check()
    cosine = torch.nn.functional.cosine_similarity
    middle = float(cosine(z, noise).median())
    pairs = []
    for i in range(N):
        order = sorted((j for j in range(N) if j != i), key=lambda j: -float(cosine(z[i], z[j], dim=0)))
        assert found.nearest[i].tolist() == order[:8]
        pairs += [(float(cosine(z[i], z[j], dim=0)), i, j) for j in range(i + 1, N) if ids[i] != ids[j]]
    pairs.sort(reverse=True)
    over = [pair for pair in pairs if pair[0] >= middle]
    same = [pair for pair in over if labelled and pair[1] % 2 == pair[2] % 2]
    assert found.counts.tolist() == [len(pairs), len(over), len(same)]
    assert float(found.positive) == pytest.approx(middle, abs=1e-6)

    def shown(of: list[tuple[float, int, int]]) -> list[list[int]]:
        seen: dict[int, int] = {}
        kept = []
        for _, i, j in of:
            if len(kept) < 12 and seen.get(i, 0) < 2 and seen.get(j, 0) < 2:
                kept.append([i, j])
                seen[i], seen[j] = seen.get(i, 0) + 1, seen.get(j, 0) + 1
        return kept

    suspect = [p for p in pairs if (p[1] % 2 == p[2] % 2 if labelled else p[0] >= middle)]
    assert found.suspected.tolist() == shown(suspect)
    assert found.hard.tolist() == shown([pair for pair in pairs if pair not in suspect])
    hits = [sum(j % 2 == i % 2 for j in found.nearest[i]) for i in range(N)]
    if labelled:
        assert hits[found.worst[0]] == min(hits)
    else:
        assert found.worst[0] == found.similarity[:, 0].argmin()


def test_images_are_compared_with_the_texts_of_others() -> None:
    z, texts = cloud(), cloud().flip(0)
    found = looked(pictures(), z, positives=lambda rows: Positives(z[rows], texts[rows], True))
    assert bool(found.crossed) and found.counts[0] == N * (N - 1)
    i, j = found.hard[0] if not len(found.suspected) else found.suspected[0]
    assert i + j == N - 1  # whose text is its own embedding
    assert float(found.suspected_similarity[0]) == pytest.approx(1, abs=1e-5)


def test_a_sample_is_bounded_drawn_by_the_seed_and_kept_whole(tmp_path: object) -> None:
    data = pictures(60, labels=[0] * 60)  # one class
    z = cloud(60)
    found = looked(data, z, most=25)
    assert len(found) == 25 and found.data.tolist() == ["d", "test", "60"]
    assert (
        found.names.tolist()
        == looked(data, z, most=25).names.tolist()
        != looked(data, z, most=25, seed=1).names.tolist()
    )
    assert found.names.tolist() == sorted(found.names.tolist(), key=int)
    assert found.worst[0] == found.similarity[:, 0].argmin()  # one class tells nothing
    again = ReportSamples.load(found.save(str(tmp_path)))
    for name, array in vars(found).items():
        np.testing.assert_array_equal(getattr(again, name), array, err_msg=name)


def test_what_cannot_be_shown_is_said_in_a_line() -> None:
    with pytest.raises(ValueError, match=facts("finite")):
        looked(pictures(), torch.full((N, 3), torch.nan))
    with pytest.raises(ValueError, match=facts("two")):
        looked(pictures(1), cloud())
    two = looked(pictures(2), cloud())
    two.check()
    collapsed = looked(pictures(), torch.ones(N, 3), ids=torch.zeros(N, dtype=torch.long))
    collapsed.check()
    assert not len(collapsed.hard) and collapsed.counts[0] == 0


@pytest.mark.parametrize("n", [1, 2, 10])
def test_a_sheet_holds_its_thumbnails_in_their_order(n: int) -> None:
    import io

    from PIL import Image

    tones = np.linspace(20, 240, n).astype(np.uint8)
    content = make_sheet(np.broadcast_to(tones[:, None, None, None], (n, 16, 16, 3)))
    assert sheet_side(content, n) == 16
    sheet, columns = np.asarray(Image.open(io.BytesIO(content))), int(np.ceil(np.sqrt(n)))
    for i in range(n):
        assert abs(int(sheet[16 * (i // columns) + 8, 16 * (i % columns) + 8, 0]) - int(tones[i])) < 12
    with pytest.raises(ValueError, match=f"expected {n + 30} "):
        sheet_side(content, n + 30)


def test_series_are_drawn_up_to_their_end() -> None:
    rising = torch.linspace(0, 1, 30).repeat(4, 2, 1)
    rising[1, :, 15:] = torch.nan  # half as long: the same line over the same width
    rising[2], rising[3] = 5.0, torch.nan
    drawn = series_pictures(rising, 32)
    assert drawn.shape == (4, 32, 32, 3)
    ink = (drawn < 250).any(3)
    assert ink[0][-4:, :4].any() and ink[0][:4, -4:].any() and not ink[0][:16, :12].any()  # from below to the top
    assert ink[1][-4:, :4].any() and ink[1][:4, -4:].any()
    assert ink[2].any(1).sum() == 1 and not ink[3].any()  # a constant is a level line, nothing is nothing
