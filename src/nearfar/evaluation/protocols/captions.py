"""Retrieval across modalities: from images to captions and back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nearfar.data.dataset import counted
from nearfar.data.groups import caption_ids
from nearfar.evaluation.metrics import Estimate, proportion, resamples, wilson, with_interval
from nearfar.evaluation.paired import SampleValues
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Task, arrays
from nearfar.losses.arguments import check_compatible, check_ids, check_rows, l2_normalize
from nearfar.metric_text import MetricStyle
from nearfar.settings import setting

_ENTRIES = 1 << 22  # similarities held at once
IMAGE_TO_TEXT, TEXT_TO_IMAGE = "image to text", "text to image"


@dataclass(frozen=True)
class CaptionsSettings:
    """Protocol captions: images and their captions, each found by the other."""

    cutoffs: list[int] = setting([1, 5, 10], "the k of recall@k", least=1)


def captions(task: Task, settings: CaptionsSettings, seed: int) -> Outcome:
    """Images retrieve their captions, captions their images; equal captions are all correct.

    For an encoder without a text input, a caption is represented by the training images that have it.
    """
    of = task.test.captions
    if of is None:
        raise ValueError(f"the {task.test.name} part has no captions")
    texts = [text for several in of for text in several]
    owner = torch.arange(len(of)).repeat_interleave(torch.tensor([len(several) for several in of]))
    ids, stands_for, notes = caption_ids(texts), None, []
    if task.embedder.embed_texts is not None:
        embedded = task.embed_texts(texts)
    else:
        rows, stands_for = _examples(task, texts)
        embedded = task.train_features[rows]
        missing = len(texts) - len(stands_for.unique())
        notes = [
            f"{task.name}: a caption is as similar as the training images that have it"
            + (f"; {missing} of {len(texts)} have none" if missing else "")
        ]
    outcome = cross_modal(
        task.test_features,
        embedded,
        owner,
        ids=ids,
        stands_for=stands_for,
        cutoffs=settings.cutoffs,
        count=task.bootstrap,
        seed=seed,
    )
    outcome.notes[:0] = notes
    return outcome


def _examples(task: Task, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Training images with one of these captions: (E,) their places, and (E,) the number of the caption."""
    known: dict[str, list[int]] = {}
    for place, several in enumerate(task.train.captions or ()):
        for text in dict.fromkeys(several):
            known.setdefault(text, []).append(place)
    pairs = [(place, number) for number, text in enumerate(texts) for place in known.get(text, ())]
    if not pairs:
        raise ValueError("it reads no texts, and no training image shares a caption with the test part")
    places, numbers = torch.tensor(pairs).T
    return places, numbers


class Ranks(NamedTuple):
    """The rank of the best correct answer of each query, from 1; images without a caption are not queries."""

    images: Tensor  # (Q,) row numbers of the images that have a caption
    image_to_text: Tensor  # (Q,) int64, of each of these images among the M texts
    text_to_image: Tensor  # (M,) of each text among the N images
    right_texts: Tensor  # (Q,) how many of the texts are right for each of these images
    right_images: Tensor  # (M,) how many of the images are right for each text


@torch.no_grad()
def cross_modal_ranks(
    images: Tensor, texts: Tensor, owner: Tensor, *, ids: Tensor | None = None, stands_for: Tensor | None = None
) -> Ranks:
    """Rank all texts for each image, and all images for each text, by cosine.

    Exact. A few queries at a time, so memory is linear in the number of rows. The place is one more than the number of
    wrong answers that are at least as similar as the best right one: ties count against the query, and an encoder that
    maps everything to one point is last, not first. Similarities that differ by rounding alone are ties.

    Args:
        images: (N, D) embeddings; normalised here.
        texts: (M, D).
        owner: (M,) integers, the row number of the image that each text belongs to.
        ids: (M,) integers, equal for equal texts: a text that equals one of the image's own is then right, too, and so
            is, for a text, every image with an equal one. None: a text is right for its owner alone.
        stands_for: (E,) integers where `texts` are (E, D) examples of the M texts, such as images that have them as
            captions: the number of the text that each is an example of. The greatest similarity of its examples is the
            text's; a text without one is last.

    >>> cross_modal_ranks(torch.eye(2), torch.eye(2)[[0, 1, 0]], torch.tensor([0, 1, 1])).text_to_image.tolist()
    [1, 1, 2]
    """
    check_rows("images", images)
    check_rows("texts", texts)
    check_compatible("images", images, "texts", texts, features_only=True)
    if stands_for is None:
        check_ids("owner", owner, len(texts), texts)
    else:
        check_ids("stands_for", stands_for, len(texts), texts)
        if len(owner) == 0 or int(stands_for.min()) < 0 or int(stands_for.max()) >= len(owner):
            raise ValueError(
                f"stands_for goes up to {int(stands_for.max())}, expected numbers of the {len(owner)} texts"
            )
    if int(owner.min()) < 0 or int(owner.max()) >= len(images):
        raise ValueError(
            f"owner goes from {int(owner.min())} to {int(owner.max())}, expected from 0 to {len(images) - 1}, rows of "
            "images"
        )
    own = torch.arange(len(owner), device=texts.device)
    if ids is not None:
        check_ids("ids", ids, len(owner), texts)
        ids = ids.unique(return_inverse=True)[1]
    ids = own if ids is None else ids
    for name, x in (("images", images), ("texts", texts)):
        if broken := int((~x.isfinite().all(1)).sum()):
            raise ValueError(f"{broken} of {len(x)} rows of {name} are not finite; was the encoder trained to the end?")
    of_images = torch.stack([owner.long(), ids]).unique(dim=1)  # (2, K): which image has which text
    of_texts = torch.stack([own, ids])  # (2, M)
    u, v = l2_normalize(images), l2_normalize(texts)
    asking = owner.long().unique()
    if stands_for is not None:
        stands_for, order = stands_for.long().sort(stable=True)
        v = v[order]

    def texts_for(part: Tensor) -> Tensor:
        """(part, M) similarities of some images."""
        s = u[part] @ v.T
        return s if stands_for is None else _greatest(s.T, stands_for, len(own)).T

    def images_for(part: Tensor) -> Tensor:
        """(part, N) similarities of some texts, whose numbers follow each other."""
        if stands_for is None:
            return v[part] @ u.T
        first, last = torch.searchsorted(stands_for, torch.stack([part[0], part[-1] + 1])).tolist()
        return _greatest(v[first:last] @ u.T, stands_for[first:last] - part[0], len(part))

    texts_ranked, right_texts = _ranks(texts_for, asking, of_images, of_texts, max(len(texts), len(own)))
    entries = len(images) * -(-len(texts) // len(own))
    images_ranked, right_images = _ranks(images_for, own, of_texts, of_images, entries)
    return Ranks(asking, texts_ranked, images_ranked, right_texts, right_images)


def _greatest(s: Tensor, number: Tensor, count: int) -> Tensor:
    """(E, N) to (count, N), the greatest of the rows of each number."""
    return s.new_full((count, s.shape[1]), -torch.inf).scatter_reduce_(0, number[:, None].expand_as(s), s, "amax")


def _ranks(
    similar: Callable[[Tensor], Tensor], asking: Tensor, of_query: Tensor, of_keys: Tensor, entries: int
) -> tuple[Tensor, Tensor]:
    """(Q,) places of the best right key, and (Q,) how many keys are right.

    Args:
        of_query, of_keys: (2, K) row numbers and ids; a key is right for a query that shares an id.
    """
    (rows, ids), key_ids = of_query[:, of_query[0].argsort(stable=True)], of_keys[1].sort()
    places, counts = [], []
    for part in asking.split(max(1, _ENTRIES // entries)):
        s = similar(part)  # (part, M)
        tie = 8 * torch.finfo(s.dtype).eps  # what rounding makes of equal cosines
        first, last = torch.searchsorted(rows, part[:1]), torch.searchsorted(rows, part[-1:], right=True)
        inside = slice(int(first), int(last))
        begin = torch.searchsorted(key_ids.values, ids[inside])
        often = torch.searchsorted(key_ids.values, ids[inside], right=True) - begin  # right keys of each pair
        place = torch.arange(int(often.sum()), device=s.device) - (often.cumsum(0) - often).repeat_interleave(often)
        column = of_keys[0][key_ids.indices[begin.repeat_interleave(often) + place]]
        row = torch.searchsorted(part, rows[inside]).repeat_interleave(often)
        best = s.new_full((len(part),), -torch.inf).scatter_reduce_(0, row, s[row, column], "amax")
        s[row, column] = torch.nan  # what compares is wrong
        counts.append(s.isnan().sum(1))
        places.append(1 + (s >= (best - tie)[:, None]).sum(1))
    return torch.cat(places), torch.cat(counts)


def chance_recall(right: Tensor, answers: int, k: int) -> float:
    """Recall@k of answers in random order: the mean over queries of 1 - C(n - a, k) / C(n, k).

    Args:
        right: (Q,) a, how many answers are right for each query.
        answers: n, how many there are in all.

    >>> round(chance_recall(torch.tensor([5]), 2500, 1), 6)  # five captions an image, 500 images
    0.002
    """
    missed = torch.ones(len(right), dtype=torch.float64)
    for drawn in range(k):  # without replacement: each of the first k is wrong
        missed *= ((answers - right.cpu().double() - drawn) / max(answers - drawn, 1)).clamp_min(0)
    return float(1 - missed.mean())


def cross_modal(
    images: Tensor,
    texts: Tensor,
    owner: Tensor,
    *,
    ids: Tensor | None = None,
    stands_for: Tensor | None = None,
    cutoffs: Sequence[int] = (1, 5, 10),
    count: int = 200,
    seed: int = 0,
) -> Outcome:
    """Recall@k, median and mean rank and the mean reciprocal rank, in both directions; a note has recall@k by chance.

    Recall@k is the share of queries with a right answer among the k first. Captions of one image are not independent,
    so the bootstrap draws images, each with all its captions.

    Args:
        images, texts, owner, ids, stands_for: see `cross_modal_ranks`.
        cutoffs: the k of recall@k; those of as many as there are answers, or more, are left out.
        count, seed: of the bootstrap's resamples.

    Reference: Karpathy & Fei-Fei 2015, section 4.2, https://arxiv.org/abs/1412.2306
    """
    if not cutoffs or min(cutoffs) < 1:
        raise ValueError(f"cutoffs is {list(cutoffs)}, expected whole numbers of at least 1")
    found = cross_modal_ranks(images, texts, owner, ids=ids, stands_for=stands_for)
    group = torch.searchsorted(found.images, owner.long())  # (M,) among the images that have a caption
    metrics: dict[str, Estimate] = {}
    samples: dict[str, SampleValues] = {}
    chances = []
    for words, ranks, right, groups, answers in (
        (IMAGE_TO_TEXT, found.image_to_text, found.right_texts, torch.arange(len(found.images)), len(owner)),
        (TEXT_TO_IMAGE, found.text_to_image, found.right_images, group, len(images)),
    ):
        by_chance = (f"@{k} {chance_recall(right, answers, k):.2%}" for k in cutoffs if k < answers)
        chances.append(f"{words} {', '.join(by_chance)}")
        metrics |= _measured(words, ranks.cpu(), groups.cpu(), answers, cutoffs, count, seed)
        alone = len(groups.unique()) == len(groups)  # captions of one image are drawn together
        for k in cutoffs:
            if k < answers:
                hits = (ranks <= k).cpu()
                samples[f"recall@{k}, {words}"] = SampleValues(hits, groups=None if alone else groups.cpu())
    silent = len(images) - len(found.images)
    notes = [f"{counted(silent, 'image')} without a caption: among the answers, but asking nothing"] if silent else []
    notes.append(f"recall by chance: {'; '.join(chances)}")
    curves = arrays(image_to_text_rank=found.image_to_text, text_to_image_rank=found.text_to_image)
    return Outcome(metrics, curves, notes, samples)


def _measured(
    words: str, ranks: Tensor, groups: Tensor, answers: int, cutoffs: Sequence[int], count: int, seed: int
) -> dict[str, Estimate]:
    """The metrics of one direction; (Q,) ranks of queries that are drawn together with their (Q,) group."""
    ranks, order = ranks.sort()
    groups = groups[order]
    images, n = int(groups.max()) + 1, len(ranks)
    parts = {f"recall@{k}": (ranks <= k).double() for k in cutoffs if k < answers}
    parts |= {"mean rank": ranks.double(), "MRR": 1 / ranks.double()}
    draws: dict[str, list[Tensor]] = {name: [] for name in (*parts, "median rank")}
    for weights in resamples(torch.zeros(images), count=count, seed=seed):
        w = weights[:, groups].double()  # (R, Q), in the order of the ranks
        for name, part in parts.items():
            draws[name].append(w @ part / w.sum(1))
        draws["median rank"].append(_median(ranks, w))
    values = {name: float(part.mean()) for name, part in parts.items()}
    values["median rank"] = float(_median(ranks, torch.ones(1, n, dtype=torch.float64)))
    metrics = {}
    for name, value in values.items():
        if "rank" in name:
            estimate = with_interval(value, torch.cat(draws[name]), n, least=1.0, most=float(answers))
        elif name != "MRR" and images == n:
            estimate = proportion(parts[name].bool())
        elif value in (0.0, 1.0):  # no resample differs: Wilson's, of as many samples as there are images
            estimate = Estimate(value, *wilson(round(value * images), images), n)
        else:
            estimate = with_interval(value, torch.cat(draws[name]), n)
        metrics[f"{name}, {words}"] = estimate
    return metrics


def _median(ranks: Tensor, weights: Tensor) -> Tensor:
    """(R,) medians of (Q,) ranks in order, each as often as the (R, Q) whole weights say."""
    up_to = weights.cumsum(1)
    total = up_to[:, -1:]
    middle = torch.cat([((total - 1) / 2).floor(), (total / 2).floor()], 1)  # (R, 2): one place, or two
    return ranks[torch.searchsorted(up_to, middle, right=True)].double().mean(1)


PROTOCOL = Protocol(
    "captions",
    captions,
    "images and their captions, each found by the other",
    "recall@1,.*",
    CaptionsSettings,
    needs="captions",
    metrics=dict.fromkeys(("median rank", "mean rank"), MetricStyle(1, less_is_better=True)),
    verdict="first",
)
