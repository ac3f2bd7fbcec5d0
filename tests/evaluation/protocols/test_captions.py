"""Image-text retrieval against plain loops, torchmetrics and numpy."""

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from nearfar import _torchvision  # noqa: F401, before torchmetrics
from nearfar.evaluation.protocols.captions import chance_recall, cross_modal, cross_modal_ranks

from torchmetrics.functional.retrieval import retrieval_hit_rate, retrieval_reciprocal_rank  # isort: skip
from tests.support.facts import all_tell, facts, tells


def pairs(n: int = 23, m: int = 61, noise: float = 0.8, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Images with several captions each; the last image has none."""
    generator = torch.Generator().manual_seed(seed)
    images = 3 * torch.randn(n, 6, generator=generator, dtype=torch.float64)
    owner = torch.cat([torch.arange(n - 1), torch.randint(n - 1, (m - n + 1,), generator=generator)])
    owner = owner[torch.randperm(m, generator=generator)]
    return images, images[owner] + 3 * noise * torch.randn(m, 6, generator=generator, dtype=torch.float64), owner


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / a.norm() / b.norm())


def loop_ranks(query: Tensor, keys: Tensor, right: list[set[int]]) -> list[int]:
    ranks = []
    for q, answers in zip(query, right, strict=True):
        s = [cosine(q, k) for k in keys]
        best = max(s[j] for j in answers)
        ranks.append(1 + sum(s[j] >= best for j in range(len(keys)) if j not in answers))
    return ranks


@pytest.mark.parametrize("same_texts", [False, True])
@pytest.mark.parametrize("entries", [1, 200, 1 << 22])
def test_ranks_equal_the_loops(entries: int, same_texts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["nearfar.evaluation.protocols.captions"], "_ENTRIES", entries)
    images, texts, owner = pairs()
    texts_of = [f"text {i % 17}" if same_texts else f"text {i}" for i in range(61)]
    ids = torch.tensor([10 * texts_of.index(text) - 5 for text in texts_of]) if same_texts else None
    found = cross_modal_ranks(images, texts, owner, ids=ids)
    own = [{texts_of[m] for m in range(61) if owner[m] == n} for n in range(23)]
    assert found.images.tolist() == list(range(22))
    right = [{m for m in range(61) if texts_of[m] in own[n]} for n in range(22)]
    assert found.image_to_text.tolist() == loop_ranks(images[:22], texts, right)
    right = [{n for n in range(23) if texts_of[m] in own[n]} for m in range(61)]
    assert found.text_to_image.tolist() == loop_ranks(texts, images, right)


@pytest.mark.parametrize("entries", [1, 200, 1 << 22])
def test_texts_that_are_known_by_examples(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["nearfar.evaluation.protocols.captions"], "_ENTRIES", entries)
    images, _, owner = pairs()
    examples = torch.randn(90, 6, dtype=torch.float64)
    stands_for = torch.randint(1, 61, (90,))  # the first text has none
    found = cross_modal_ranks(images, examples, owner, stands_for=stands_for)
    s = torch.full((23, 61), -torch.inf, dtype=torch.float64)
    for n in range(23):
        for e, m in enumerate(stands_for.tolist()):
            s[n, m] = max(float(s[n, m]), cosine(images[n], examples[e]))
    for n in range(22):
        best = max(s[n, m] for m in range(61) if owner[m] == n)
        assert found.image_to_text[n] == 1 + sum(s[n, m] >= best for m in range(61) if owner[m] != n)
    for m in range(61):
        own = int(owner[m])
        assert found.text_to_image[m] == 1 + sum(s[n, m] >= s[own, m] for n in range(23) if n != own)
    assert found.text_to_image[0] == 23


def test_metrics_are_those_of_numpy_and_torchmetrics() -> None:
    images, texts, owner = pairs()
    outcome = cross_modal(images, texts, owner, count=50)
    found = cross_modal_ranks(images, texts, owner)
    for words, ranks, query, keys in (
        ("image to text", found.image_to_text, images[:22], texts),
        ("text to image", found.text_to_image, texts, images),
    ):
        value = {name: outcome.metrics[f"{name}, {words}"].value for name in ("median rank", "mean rank", "MRR")}
        assert value["median rank"] == np.median(ranks.numpy())
        assert value["mean rank"] == pytest.approx(np.mean(ranks.numpy()))
        s = torch.nn.functional.normalize(query, dim=1) @ torch.nn.functional.normalize(keys, dim=1).T
        images_of = (
            (torch.arange(22)[:, None], owner) if words == "image to text" else (owner[:, None], torch.arange(23))
        )
        right = images_of[0] == images_of[1]
        theirs = [float(retrieval_reciprocal_rank(s[i], right[i])) for i in range(len(s))]
        assert value["MRR"] == pytest.approx(np.mean(theirs), abs=1e-6)
        for k in (1, 5, 10):
            hits = [float(retrieval_hit_rate(s[i], right[i], top_k=k)) for i in range(len(s))]
            assert outcome.metrics[f"recall@{k}, {words}"].value == pytest.approx(np.mean(hits))
    assert all_tell(outcome.notes, ["1 image caption", "recall chance @1 @5 @10"])
    assert outcome.metrics["MRR, text to image"].n == 61


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_collapsed_encoder_is_last(dtype: torch.dtype) -> None:
    one = torch.randn(1, 33, generator=torch.Generator().manual_seed(0))
    lengths = torch.linspace(0.5, 2, 40)[:, None]
    same = (one * lengths).to(dtype)
    ranks = cross_modal_ranks(same, same, torch.arange(40))
    if dtype == torch.float32:  # in half precision the rows truly differ
        assert ranks.image_to_text.tolist() == ranks.text_to_image.tolist() == [40] * 40
    zeros = torch.zeros(5, 3, dtype=dtype)
    assert cross_modal_ranks(zeros, zeros, torch.arange(5)).text_to_image.tolist() == [5] * 5


def test_equal_captions_tie_unless_their_ids_say_so() -> None:
    images, owner = torch.eye(3)[[0, 0, 1]], torch.arange(3)
    assert cross_modal_ranks(images, images, owner).text_to_image.tolist() == [2, 2, 1]
    assert cross_modal_ranks(images, images, owner, ids=torch.tensor([7, 7, 9])).text_to_image.tolist() == [1, 1, 1]


def test_intervals_hold_the_value_and_grow_with_dependence() -> None:
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(80, 5, generator=generator)
    seen = images + 0.7 * torch.randn(80, 5, generator=generator)
    alone = cross_modal(images, seen, torch.arange(80)).metrics
    copied = cross_modal(images, seen.repeat(4, 1), torch.arange(80).repeat(4)).metrics
    for metrics in (alone, copied):
        for name, estimate in metrics.items():
            assert estimate.low is not None and estimate.high is not None, name
            assert estimate.low <= estimate.value <= estimate.high, name

    def width(name: str) -> tuple[float, float]:
        a, b = alone[name], copied[name]
        assert None not in (a.low, a.high, b.low, b.high)
        return a.high - a.low, b.high - b.low  # type: ignore[operator]

    for name in ("MRR, text to image", "recall@1, text to image", "mean rank, text to image"):
        one, four = width(name)
        assert four == pytest.approx(one, rel=0.15)  # four copies of a caption are no more samples than one
    perfect = cross_modal(images, images, torch.arange(80)).metrics["recall@1, text to image"]
    assert perfect.value == 1 and perfect.low is not None and 0.9 < perfect.low < 1


def test_chance_is_what_random_embeddings_reach() -> None:
    """Images with one to four captions, some of which are equal: no closed form is used."""
    generator = torch.Generator().manual_seed(0)
    _, _, owner = pairs()
    ids = torch.randint(40, (61,), generator=generator)
    hits: dict[tuple[str, int], list[float]] = {}
    for _ in range(300):
        images, texts = torch.randn(23, 8, generator=generator), torch.randn(61, 8, generator=generator)
        found = cross_modal_ranks(images, texts, owner, ids=ids)
        for words, ranks in (("image to text", found.image_to_text), ("text to image", found.text_to_image)):
            for k in (1, 5, 10):
                hits.setdefault((words, k), []).append(float((ranks <= k).double().mean()))
    for k in (1, 5, 10):
        assert np.mean(hits["image to text", k]) == pytest.approx(chance_recall(found.right_texts, 61, k), abs=0.01)
        assert np.mean(hits["text to image", k]) == pytest.approx(chance_recall(found.right_images, 23, k), abs=0.01)


def test_five_captions_an_image_are_five_right_answers() -> None:
    owner = torch.arange(500).repeat_interleave(5)
    images = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    notes = cross_modal(images, images[owner], owner, count=2).notes
    assert tells(notes[-1], "image to text @1 0.20% @5 1.00% @10 1.99%") and tells(notes[-1], "text to image @10 2.00%")
    assert chance_recall(torch.tensor([3, 0]), 4, 2) == 0.5  # three of four: two draws cannot both be wrong


def test_errors_say_what_was_seen() -> None:
    z = torch.randn(4, 3)
    with pytest.raises(ValueError, match=facts("owner 1 4 0 3")):
        cross_modal_ranks(z, z, torch.arange(1, 5))
    with pytest.raises(ValueError, match=facts("1 4 text finite")):
        cross_modal_ranks(z, z.clone().fill_diagonal_(torch.nan)[[0, 3, 3, 3]], torch.arange(4))
    with pytest.raises(ValueError, match=facts("cutoffs [0]")):
        cross_modal(z, z, torch.arange(4), cutoffs=[0])
    with pytest.raises(ValueError, match=facts("features")):
        cross_modal(z, z[:, :2], torch.arange(4))
