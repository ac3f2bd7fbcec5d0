"""Raw text as numbers: tf-idf, what sentences share before anything is learned."""

import re
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.modalities.baseline import Baseline
from nearfar.modalities.text.tokenizer import Tokenizer

_ENTRIES = 1 << 22  # dense entries held at once
_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """The terms of a text, in lower case, each as often as it occurs."""
    return _WORD.findall(text.lower())


class TfIdf:
    """Counts of words, times how rare each word is, as rows of length one.

    Equal to scikit-learn's `TfidfVectorizer` (smooth idf, l2) on the same terms, in the same order of columns; terms
    that were not among the texts are ignored.

    Args:
        texts: from which the terms and their idf are taken. Nothing else of them is learned, so for the similarity of
            sentences these may be the very sentences that are compared: a baseline is not to be made weak.

    >>> encoder = TfIdf(["a red cat", "a red dog", "a bird"])
    >>> list(encoder.terms), tuple(encoder(["red red cat"]).shape)
    (['a', 'bird', 'cat', 'dog', 'red'], (1, 5))
    """

    def __init__(self, texts: Sequence[str]) -> None:
        holding = Counter(term for text in texts for term in set(words_of(text)))  # texts that have the term
        if not holding:
            raise ValueError(f"{len(texts)} texts have no word in them, expected some")
        self.terms = {term: number for number, term in enumerate(sorted(holding))}
        often = torch.tensor([holding[term] for term in self.terms], dtype=torch.float64)
        self.idf = ((1 + len(texts)) / (1 + often)).log() + 1  # (V,) float64

    def sparse(self, texts: Sequence[str]) -> Tensor:
        """(N, V) sparse rows of float32: memory is that of the terms which occur."""
        rows: list[int] = []
        columns: list[int] = []
        values: list[int] = []
        for row, text in enumerate(texts):
            counts = Counter(number for term in words_of(text) if (number := self.terms.get(term)) is not None)
            rows += [row] * len(counts)
            columns += counts.keys()
            values += counts.values()
        index = torch.tensor([rows, columns], dtype=torch.long).view(2, -1)
        x = torch.tensor(values, dtype=torch.float64) * self.idf[index[1]]
        squares = torch.zeros(len(texts), dtype=torch.float64).index_add_(0, index[0], x.square())
        x = (x / squares.sqrt()[index[0]]).float()
        return torch.sparse_coo_tensor(index, x, (len(texts), len(self.terms)), check_invariants=False).coalesce()

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """(N, V) dense rows of float32, for a few texts."""
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


class TfIdfBaseline(Baseline):
    """What sentences know before anything is learned: tf-idf of all their words, in sparse rows.

    Terms and idf are those of all sentences that take part, as `TfidfVectorizer.fit` would be given them: no label and
    no score is used. Pairs are compared by the idf of the compared sentences alone, which serves them best.

    Args:
        train, test: the texts of both parts.
        tokenizer: turns tokens back into texts, where there are tokens alone.
    """

    protocols = ("knn", "linear", "similarity")

    def __init__(self, train: Dataset, test: Dataset, tokenizer: Tokenizer) -> None:
        texts = [text for part in (train, test) for text in (*(part.texts or ()), *(part.partners or ()))]
        self.tfidf, self.tokenizer = TfIdf(texts), tokenizer

    def sparse_rows(self, data: Dataset, rows: Tensor) -> Tensor:
        """(K,) numbers of texts to (K, V): memory is that of the words."""
        assert data.texts is not None
        return self.tfidf.sparse([data.texts[row] for row in rows.tolist()])

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """(P,) of pairs of texts."""
        return TfIdf([*first, *second]).cosines(first, second)

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.embed_texts(self.tokenizer.decode(tokens))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(B, V), dense: for a few texts."""
        return self.tfidf(texts)
