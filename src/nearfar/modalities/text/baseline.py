"""What sentences know before anything is learned: tf-idf."""

from collections.abc import Sequence

from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.modalities.baseline import Baseline
from nearfar.modalities.text.tfidf import TfIdf
from nearfar.modalities.text.tokenizer import Tokenizer


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
