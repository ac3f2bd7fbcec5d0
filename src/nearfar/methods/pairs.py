"""Pairs: an anchor must find its positive among the positives, and the hard negatives, of the batch.

- **Nested dimensions are a wrapper**: `NestedDims.contrast` calls a method's own loss on the first d numbers of
  everything that `encode` calls z1, z2, ...; health is that of the whole embedding. It is for methods whose loss
  compares what the user keeps. Whitening would mix the numbers, so it is refused beside `dims`; these methods have
  plain embeddings by default.
- **A guide is rows of the batch.** A method names weights (`Method.guide`), the run opens them and puts their
  embeddings of the batch's samples into `Batch.guide`: computed once a step, so that caching and processes see plain
  rows. The engine leaves out a pair where the guide's product is above the query's limit, tile by tile
  (`losses/engine/guide.py`); a ring would have to send these rows, too, and refuses.
- **One pair loss** (`pair_loss`) serves `pairs`, `simcse` and `clip`: in-batch negatives, hard negatives, both
  directions, guide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.losses import guided_info_nce, info_nce, symmetric_info_nce
from nearfar.losses.supervised import number_classes
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy, all_differ
from nearfar.methods.nested import NestedDims
from nearfar.methods.toy import guided, text_pair_views, toy_method, toy_text_encoder
from nearfar.nn.shard import global_rows

_FACTOR = 0x5851F42D4C957F2D  # odd, so that no token of a text is lost modulo 2^64


class Pairs(Method):
    """InfoNCE on the embeddings themselves: what is compared in training is what the user keeps.

    The batch's views are the anchor, its positive, and any number of hard negatives (`Batch.negatives` says how many of
    the views). Every positive and every hard negative of the batch is a negative of every anchor, except those of equal
    ids and those that repeat, word for word, an anchor's own text or positive. Samples without a partner are read
    twice (texts, by dropout) or seen in two views (images, sounds, series).

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature: divides the cosine similarities; 0.05 is the scale 20 of sentence-transformers.
        symmetric: also let each positive find its anchor among the anchors, and take the mean.
        dims, dim_weights: widths at which the first numbers of an embedding are compared, too (`NestedDims`).
        guide: weights of a frozen encoder, named as `--weights` is: negatives that it finds nearer to the anchor than
            the positive are left out (`guided_info_nce`).
        guide_margin, guide_relative_margin: by so much less near, too: as a cosine, or as a part of the positive's.

    It is the MultipleNegativesRankingLoss of sentence-transformers, with `dims` its MatryoshkaLoss, and with `guide`
    its GISTEmbedLoss without contrast_anchors and contrast_positives.

    References: Henderson et al. 2017, section 4, https://arxiv.org/abs/1705.00652; the guide: Solatorio 2024,
    https://arxiv.org/abs/2402.16829
    """

    name = "pairs"
    when = "you have pairs: questions and answers, titles and bodies"
    reference = ("Henderson et al. 2017", "https://arxiv.org/abs/1705.00652")
    also_needs = "pairs, or views"
    modalities = ("text", "image", "sound", "series")
    ring = True
    settings = {kind: {"embedding": "plain"} for kind in modalities}  # the loss has seen the embeddings as they are
    toy_options = {"symmetric": True, "dims": [16, 4]}

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.05,
        symmetric: bool = False,
        dims: Sequence[int] = (),
        dim_weights: Sequence[float] = (),
        guide: str | None = None,
        guide_margin: float = 0.0,
        guide_relative_margin: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder, self.temperature, self.symmetric = encoder, temperature, symmetric
        self.nested = NestedDims(dims, dim_weights, features)
        self.guide, self.margins = guide, (guide_margin, guide_relative_margin)
        self.ring = guide is None  # whose rows would have to travel, too

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        return toy_method(cls, rows, encoder=toy_text_encoder, views=text_pair_views, **{**cls.toy_options, **options})

    @classmethod
    def more_toys(cls) -> dict[str, Toy]:
        return {"guide and hard negatives": guided(cls.toy(guide="toy", guide_margin=0.2), negatives=2)}

    def encode(self, batch: Batch) -> Encoded:
        views, negatives = readings(batch)
        check_dropout(self, views)
        encoded = {f"z{i}": self.encoder(x) for i, x in enumerate((*views[:2], *negatives), 1)}  # each (B, F)
        encoded["ids"] = batch.ids
        if negatives:
            encoded["texts"] = torch.stack([row_numbers(x) for x in (*views[:2], *negatives)], 1)  # (B, 2 + n)
        if batch.guide is not None:
            encoded["guide"] = batch.guide
        return encoded

    def contrast(self, encoded: Encoded) -> Step:
        return self.nested.contrast(self._contrast, encoded)

    def _contrast(self, encoded: Encoded) -> Step:
        z1, z2, ids = encoded["z1"], encoded["z2"], encoded["ids"]
        negatives = [encoded[f"z{i}"] for i in range(3, 3 + len(encoded)) if f"z{i}" in encoded]
        texts, guide = encoded.get("texts"), encoded.get("guide")
        guides = None if guide is None else Guides(guide, *self.margins)
        loss = pair_loss(
            z1,
            z2,
            negatives,
            temperature=self.temperature,
            ids=ids,
            texts=texts,
            symmetric=self.symmetric,
            guides=guides,
        )
        fair = all_differ(ids) & (not negatives and guide is None)  # negatives are no draws from all texts
        candidates = global_rows(len(z1)) * (1 + len(negatives))
        return Step(loss, z1.detach(), z2.detach(), candidates=candidates, fair=fair)


@dataclass(frozen=True)
class Guides:
    """What a guide makes of the views, and by how much less than the positive a negative must resemble the anchor."""

    rows: Tensor  # (B, V, G), V views, or one that stands for all
    margin: float
    relative_margin: float

    def of_view(self, number: int) -> Tensor:
        return self.rows[:, min(number, self.rows.shape[1] - 1)]


def pair_loss(
    query: Tensor,
    positive: Tensor,
    negatives: Sequence[Tensor] = (),
    *,
    temperature: float | Tensor,
    ids: Tensor,
    texts: Tensor | None = None,
    symmetric: bool = False,
    guides: Guides | None = None,
) -> Tensor:
    """InfoNCE of pairs (B, D) with in-batch negatives, and any number of hard negatives (B, D) for each.

    Args:
        ids: (B,) samples with equal ids are no negatives of each other.
        texts: (B, 2 + n) `row_numbers` of anchors, positives and hard negatives; None: what they say is not known, and
            a hard negative counts for every anchor.
        symmetric: the mean with the loss of the positives that look for their anchors; hard negatives take no part.
    """
    if symmetric and not negatives and guides is None:
        return symmetric_info_nce(query, positive, temperature=temperature, ids=ids)
    keys: Tensor | None = None
    key_ids: Tensor | None = None
    if negatives:
        ids = number_classes(ids)
        of_negatives = negative_ids(texts, ids, len(negatives))
        keys, key_ids = torch.cat([positive, *negatives]), torch.cat([ids, of_negatives])  # (B + nB, D), (B + nB,)
    if guides is None:
        loss = info_nce(query, positive, keys, temperature=temperature, ids=ids, negative_ids=key_ids)
        back = info_nce(positive, query, temperature=temperature, ids=ids) if symmetric else None
        return loss if back is None else (loss + back) / 2
    first, second = guides.of_view(0), guides.of_view(1)
    of_keys = [torch.cat([second, *(guides.of_view(2 + i) for i in range(len(negatives)))])] if negatives else []
    guided = partial(
        guided_info_nce,
        temperature=temperature,
        margin=guides.margin,
        relative_margin=guides.relative_margin,
        ids=ids,
    )
    loss = guided(query, positive, keys, guides=[first, second, *of_keys], negative_ids=key_ids)
    return (loss + guided(positive, query, guides=[second, first])) / 2 if symmetric else loss


def readings(batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
    """The views that belong together, at least two, and the hard negatives among the views of a batch."""
    views = list(batch.views)
    negatives = int(len(views) == 3) if batch.negatives is None else batch.negatives
    views, contradictions = views[: len(views) - negatives], views[len(views) - negatives :]
    return views if len(views) > 1 else views * 2, contradictions


def check_dropout(method: Method, views: Sequence[Tensor]) -> None:
    """Refuse two views that are the same sentence if no dropout makes them differ."""
    has_dropout = any(isinstance(part, nn.Dropout) and part.p > 0 for part in method.encoder.modules())
    if method.training and not has_dropout and torch.equal(views[0], views[1]):
        raise ValueError(
            "both views of a sentence are identical, since the encoder has no dropout; create it with dropout=0.1, "
            "or give pairs of sentences"
        )


def row_numbers(tokens: Tensor) -> Tensor:
    """(B, L) tokens to (B,) int64, equal for equal texts, whatever the padding after them; else by accident alone.

    >>> row_numbers(torch.tensor([[5, 7, 0]])) == row_numbers(torch.tensor([[5, 7]]))
    tensor([True])
    """
    powers = torch.full((tokens.shape[1],), _FACTOR, dtype=torch.int64, device=tokens.device).cumprod(0)
    return (tokens.long() * powers).sum(1)


def negative_ids(texts: Tensor | None, ids: Tensor, count: int) -> Tensor:
    """(count · B,) of each hard negative the id of a sample whose own or whose positive's words it has, else no one's.

    Args:
        texts: (B, 2 + count) `row_numbers` of samples, positives and hard negatives; None: nobody's words are known.
        ids: (B,) from 0 to B - 1.
    """
    if texts is None:
        return torch.full((count * len(ids),), len(ids), device=ids.device)
    known, order = texts[:, :2].T.flatten().sort(stable=True)  # (2B,)
    wanted = texts[:, 2:].T.reshape(-1).contiguous()  # (count · B,)
    last = (torch.searchsorted(known, wanted, right=True) - 1).clamp(min=0)  # of equal ones
    return torch.where(known[last] == wanted, ids[order[last] % len(ids)], len(ids))
