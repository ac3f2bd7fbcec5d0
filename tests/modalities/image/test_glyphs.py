"""The built-in letters: deterministic, split by font, hard for raw pixels, told truly by label and caption."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nearfar.data.dataset import ArrayDataset, Dataset
from nearfar.modalities.image.data.glyphs import glyph_scenes, glyphs, held_out_pairs
from nearfar.modalities.image.data.letters import COLORS, LETTERS, TEST_FONTS, TRAIN_FONTS, masks
from nearfar.modalities.image.data.opening import open_images
from tests.support.facts import facts


def test_same_seed_same_glyphs_whatever_n() -> None:
    few, many = glyphs(1030, seed=3), glyphs(1100, seed=3)
    assert np.array_equal(few.images, many.images[:1030])
    assert few.labels is not None and many.labels is not None
    assert torch.equal(few.labels, many.labels[:1030])
    assert few.captions == list(many.captions or [])[:1030]


def test_seed_and_split_change_them() -> None:
    base = glyphs(64, seed=0).images
    assert not np.array_equal(base, glyphs(64, seed=1).images)
    assert not np.array_equal(base, glyphs(64, seed=0, split="test").images)


def test_number_of_threads_changes_nothing() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = glyphs(200, seed=0).images
        torch.set_num_threads(2)
        assert np.array_equal(one, glyphs(200, seed=0).images)
    finally:
        torch.set_num_threads(threads)


def test_held_out_fonts_and_all_letters_apart() -> None:
    assert not set(TRAIN_FONTS) & set(TEST_FONTS)
    for fonts in (TRAIN_FONTS, TEST_FONTS):
        drawn = masks(fonts).flatten(2)  # (F, 26, pixels)
        ink = drawn.sum(-1)
        assert bool((ink > 0).all())
        for font in drawn:
            assert len({letter.numpy().tobytes() for letter in font}) == 26
        edges = masks(fonts)[:, :, [0, -1]].sum() + masks(fonts)[:, :, :, [0, -1]].sum()
        assert edges == 0  # no letter is cut off


def test_labels_and_captions_agree() -> None:
    data = glyphs(500, seed=0)
    assert data.labels is not None and data.captions is not None and data.classes == list(LETTERS)
    assert data.labels.unique().tolist() == list(range(26))
    for label, (caption,) in zip(data.labels.tolist(), data.captions, strict=True):
        words = caption.split()
        assert words[0] == ("an" if words[1][0] in "aeiou" else "a")
        assert words[1] in COLORS and words[5] in COLORS and words[1] != words[5]
        assert words[2:5] == ["letter", LETTERS[label], "on"]


def test_caption_names_the_ground() -> None:
    data = glyphs(200, seed=0)
    assert data.captions is not None
    ground = np.median(data.images.reshape(200, -1, 3), axis=1)  # most pixels are ground
    near = [
        np.abs(pixel - np.array(COLORS[caption.split()[-1]])).max() < 45
        for pixel, (caption,) in zip(ground, data.captions, strict=True)
    ]
    assert np.mean(near) > 0.98


def test_raw_pixels_know_little_and_shapes_much() -> None:
    train, test = glyphs(6000, seed=0), glyphs(1000, seed=0, split="test")
    assert 0.08 < raw_knn(train, test) < 0.16


def raw_knn(train: ArrayDataset, test: ArrayDataset, k: int = 20) -> float:
    """Accuracy of weighted cosine k-NN on pixels."""
    assert train.labels is not None and test.labels is not None
    keys, queries = (
        F.normalize(data.fetch(torch.arange(len(data))).float().flatten(1), dim=1) for data in (train, test)
    )
    near, which = (queries @ keys.T).topk(k)
    votes = torch.zeros(len(test), 26).scatter_add_(1, train.labels[which], (near / 0.07).exp())
    return float((votes.argmax(1) == test.labels).float().mean())


def combinations(data: Dataset) -> set[tuple[str, str]]:
    assert data.captions is not None
    words = [caption.split() for (caption,) in data.captions]
    return {(letter, color) for _, color, _, letter, _, _ in words}


@pytest.mark.parametrize("seed", [0, 1])
def test_compositional_split_tests_combinations_never_trained_on(seed: int) -> None:
    train = open_images("glyphs:compositional:6000", seed=seed)
    test = open_images("glyphs:compositional:6000", seed=seed, split="test")
    assert (len(train), len(test)) == (6000, 1200)
    seen, held = combinations(train), combinations(test)
    assert not seen & held and len(seen | held) == 26 * len(COLORS)
    for both in (seen, held):
        assert {letter for letter, _ in both} == set(LETTERS) and {color for _, color in both} == set(COLORS)


def test_compositional_split_depends_on_the_seed_alone() -> None:
    few, many = (glyphs(n, seed=3, split="test", compositional=True) for n in (250, 300))
    assert np.array_equal(few.images, many.images[:250]) and few.captions == list(many.captions or [])[:250]
    assert not np.array_equal(held_out_pairs(0), held_out_pairs(1))
    assert combinations(few) <= {
        (LETTERS[letter], list(COLORS)[color]) for letter, color in np.argwhere(held_out_pairs(3)).tolist()
    }


def test_open_data_by_name() -> None:
    with pytest.raises(ValueError, match=facts("'glyphs:composed'")):
        open_images("glyphs:composed")
    train, test = open_images("glyphs:100", seed=2), open_images("glyphs:100", seed=2, split="test")
    assert (len(train), len(test), train.size) == (100, 20, 32)


@pytest.mark.parametrize(("split", "seed", "message"), [("all", 0, "split 'all'"), ("train", -1, "seed -1")])
def test_refuses_in_one_line(split: str, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=facts(message)):
        glyphs(3, seed=seed, split=split)  # type: ignore[arg-type]


def test_scenes_have_letters_where_the_boxes_are() -> None:
    scenes, again = glyph_scenes(20, seed=0), glyph_scenes(12, seed=0)
    assert np.array_equal(scenes.dataset.images[:12], again.dataset.images)
    assert {len(boxes) for boxes in glyph_scenes(60, seed=1).boxes} == {1, 2, 3, 4, 5}
    for image, boxes, labels in zip(scenes.dataset.images, scenes.boxes, scenes.labels, strict=True):
        assert boxes.shape == (len(labels), 4) and labels.dtype == torch.int64
        assert bool((boxes[:, :2] >= 0).all() and (boxes[:, 2:] <= 96).all() and (boxes[:, 2:] > boxes[:, :2]).all())
        ground = np.median(image.reshape(-1, 3), axis=0)
        off = np.abs(image.astype(float) - ground).max(-1) > 40  # ink, and a little clutter
        inside = np.zeros((96, 96), bool)
        for x1, y1, x2, y2 in boxes.int().tolist():
            assert not inside[y1:y2, x1:x2].any()  # boxes do not overlap
            assert off[y1:y2, x1:x2].mean() > 0.12
            inside[y1:y2, x1:x2] = True
        assert off[~inside].mean() < 0.1
