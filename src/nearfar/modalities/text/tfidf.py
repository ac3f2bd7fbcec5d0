"""Raw text as numbers: tf-idf, what sentences share before anything is learned."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from nearfar.losses.arguments import check_choice

Kind = Literal["word", "char"]
_ENTRIES = 1 << 22  # dense entries held at once
_WORD = re.compile(r"\w+")


class TfIdf:
    """Counts of terms, times how rare each term is, as rows of length one.

    Equal to scikit-learn's `TfidfVectorizer` (smooth idf, l2) on the same terms, in the same order of columns; terms
    that were not among the texts are ignored.

    Args:
        texts: from which the terms and their idf are taken. Nothing else of them is learned, so for the similarity of
            sentences these may be the very sentences that are compared: a baseline is not to be made weak.
        kind: "word": words in lower case; "char": letters in sequence within words, a space before and after each.
        ngrams: shortest and longest sequence of words or letters that is a term.
        most: keep the so many most frequent terms alone, so that dense rows stay of a sane width.

    >>> encoder = TfIdf(["a red cat", "a red dog", "a bird"])
    >>> list(encoder.terms), tuple(encoder(["red red cat"]).shape)
    (['a', 'bird', 'cat', 'dog', 'red'], (1, 5))
    """

    def __init__(
        self, texts: Sequence[str], *, kind: Kind = "word", ngrams: tuple[int, int] = (1, 1), most: int | None = None
    ) -> None:
        check_choice("kind", kind, ("word", "char"))
        if not 1 <= ngrams[0] <= ngrams[1]:
            raise ValueError(f"ngrams is {ngrams}, expected a shortest of at least 1 and a longest of no less")
        if most is not None and most < 1:
            raise ValueError(f"most is {most}, expected at least 1, or None for all terms")
        self.kind, self.ngrams = kind, ngrams
        total: Counter[str] = Counter()
        holding: Counter[str] = Counter()  # texts that have the term
        for text in texts:
            counts = Counter(self.split(text))
            total.update(counts)
            holding.update(counts.keys())
        if not total:
            raise ValueError(f"{len(texts)} texts have no term of kind {kind!r} in them, expected some words")
        kept = sorted(sorted(total), key=lambda term: -total[term])[:most]
        self.terms = {term: number for number, term in enumerate(sorted(kept))}
        often = torch.tensor([holding[term] for term in self.terms], dtype=torch.float64)
        self.idf = ((1 + len(texts)) / (1 + often)).log() + 1  # (V,) float64

    def split(self, text: str) -> Iterator[str]:
        """The terms of a text, each as often as it occurs."""
        words = _WORD.findall(text.lower())
        for n in range(self.ngrams[0], self.ngrams[1] + 1):
            if self.kind == "word":
                yield from (" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
                continue
            for word in words:
                if n > self.ngrams[0] and n > len(word) + 2:
                    continue  # the whole word was a term already
                yield from (f" {word} "[i : i + n] for i in range(max(1, len(word) + 3 - n)))

    @property
    def num_features(self) -> int:
        """V, the number of terms."""
        return len(self.terms)

    def sparse(self, texts: Sequence[str]) -> Tensor:
        """(N, V) sparse rows of float32: memory is that of the terms which occur."""
        rows: list[int] = []
        columns: list[int] = []
        values: list[int] = []
        for row, text in enumerate(texts):
            counts = Counter(number for term in self.split(text) if (number := self.terms.get(term)) is not None)
            rows += [row] * len(counts)
            columns += counts.keys()
            values += counts.values()
        index = torch.tensor([rows, columns], dtype=torch.long).view(2, -1)
        x = torch.tensor(values, dtype=torch.float64) * self.idf[index[1]]
        squares = torch.zeros(len(texts), dtype=torch.float64).index_add_(0, index[0], x.square())
        x = (x / squares.sqrt()[index[0]]).float()
        return torch.sparse_coo_tensor(index, x, (len(texts), len(self.terms)), check_invariants=False).coalesce()

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """(N, V) dense rows of float32, for what asks for such: limit V by `most`."""
        return self.sparse(texts).to_dense()

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """(P,) float64 cosines of pairs of texts, as `pair_cosines` has them."""
        if len(first) != len(second):
            raise ValueError(f"{len(first)} and {len(second)} texts, expected pairs")
        shared = (self.sparse(first) * self.sparse(second)).coalesce()
        found = torch.zeros(len(first), dtype=torch.float64)
        return found.index_add_(0, shared.indices()[0], shared.values().double()).round(decimals=6)


@torch.no_grad()
def sparse_nearest(query: Tensor, keys: Tensor, *, k: int) -> tuple[Tensor, Tensor]:
    """`nearest` of sparse rows: (N, k) inner products of each query with its k nearest keys, falling, and their rows.

    Exact, a few queries at a time: neither rows nor similarities are ever held dense. `knn_votes` makes of it classes.

    Args:
        query, keys: (N, V), (M, V) sparse.
        k: at most M.

    >>> query, keys = torch.eye(3).to_sparse(), torch.eye(3)[[2, 0, 1]].to_sparse()
    >>> sparse_nearest(query, keys, k=1)[1].flatten().tolist()
    [1, 2, 0]
    """
    if not 1 <= k <= len(keys):
        raise ValueError(f"k is {k}, expected a whole number from 1 to {len(keys)}, the keys")
    values, rows = [], []
    at_once = max(1, _ENTRIES // max(keys.shape))
    for part in torch.arange(len(query)).split(at_once):
        dense = query.index_select(0, part).to_dense()  # (part, V)
        best = torch.sparse.mm(keys, dense.T).T.topk(k)  # (part, M) to (part, k)
        values.append(best.values)
        rows.append(best.indices)
    return torch.cat(values), torch.cat(rows)
