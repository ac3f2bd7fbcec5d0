"""tf-idf against scikit-learn's, term by term."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from nearfar.evaluate import TfIdf, knn_predict, pair_cosines, sentence_similarity, sparse_nearest
from nearfar.evaluate.knn import knn_votes
from nearfar.evaluate.tfidf import Kind

TEXTS = [
    "A man is playing a large flute.",
    "A man is playing a flute, a man's flute!",
    "Über den Dächern: ein GROẞER Vogel",
    "three men are playing chess",
    "",
    "I",
    "Two dogs run\tthrough  the snow; two dogs",
]
OTHERS = ["a flute and a dog", "nothing of it: xyz", "two men", "..."]


@pytest.mark.parametrize(
    ("kind", "ngrams"), [("word", (1, 1)), ("word", (1, 3)), ("char", (3, 3)), ("char", (2, 5)), ("char", (4, 6))]
)
def test_rows_are_scikit_learns(kind: Kind, ngrams: tuple[int, int]) -> None:
    ours = TfIdf(TEXTS, kind=kind, ngrams=ngrams)
    theirs = TfidfVectorizer(
        analyzer="word" if kind == "word" else "char_wb", ngram_range=ngrams, token_pattern=r"(?u)\b\w+\b"
    )
    if kind == "char":  # scikit-learn cuts words at spaces alone: the same words are given to both
        clean = [[" ".join(w for w in TfIdf([text + " x"]).split(text)) for text in texts] for texts in (TEXTS, OTHERS)]
    else:
        clean = [TEXTS, OTHERS]
    theirs.fit(clean[0])
    assert list(ours.terms) == theirs.get_feature_names_out().tolist()
    for texts, same in ((TEXTS, clean[0]), (OTHERS, clean[1])):
        np.testing.assert_allclose(ours(texts).numpy(), theirs.transform(same).toarray(), atol=1e-6)
        torch.testing.assert_close(ours.sparse(texts).to_dense(), ours(texts))


def test_the_most_frequent_terms_are_kept() -> None:
    texts = ["a a a b b c", "a b d", "a e e e e e"]
    ours = TfIdf(texts, most=3)
    theirs = TfidfVectorizer(max_features=3, token_pattern=r"(?u)\b\w+\b").fit(texts)
    assert list(ours.terms) == theirs.get_feature_names_out().tolist() == ["a", "b", "e"]
    np.testing.assert_allclose(ours(texts).numpy(), theirs.transform(texts).toarray(), atol=1e-6)
    assert ours.num_features == 3


def test_cosines_of_pairs_are_those_of_the_dense_rows() -> None:
    encoder = TfIdf(TEXTS)
    first, second = TEXTS, TEXTS[1:] + TEXTS[:1]
    found = encoder.cosines(first, second)
    torch.testing.assert_close(found, pair_cosines(encoder(first), encoder(second)), atol=2e-6, rtol=0)
    assert encoder.cosines(["a man"], ["man a"]).tolist() == [1.0]
    assert sentence_similarity(encoder(first), encoder(second), torch.arange(7.0)).metrics["Spearman"].n == 7
    with pytest.raises(ValueError, match="1 and 2 texts, expected pairs"):
        encoder.cosines(["a"], ["a", "b"])


def test_sparse_neighbours_are_the_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    words = [f"w{n}" for n in range(60)]
    texts = [" ".join(words[i] for i in torch.randint(60, (9,), generator=generator)) for _ in range(150)]
    labels = torch.randint(4, (100,), generator=generator)
    encoder = TfIdf(texts[:100])
    keys, query = encoder.sparse(texts[:100]), encoder.sparse(texts[100:])
    for entries in (1, 700, 1 << 22):
        monkeypatch.setattr("nearfar.evaluate.tfidf._ENTRIES", entries)
        values, rows = sparse_nearest(query, keys, k=5)
        dense = query.to_dense() @ keys.to_dense().T
        torch.testing.assert_close(values, dense.topk(5).values)
        torch.testing.assert_close(dense.gather(1, rows), values)
    ours = knn_votes(values, labels[rows], temperature=0.07, classes=4)
    theirs = knn_predict(keys.to_dense(), labels, query.to_dense(), k=5, classes=4)
    assert (ours.argmax(1) == theirs.argmax(1)).float().mean() > 0.9  # ties of similarity may go either way
    with pytest.raises(ValueError, match="k is 101, expected a whole number from 1 to 100"):
        sparse_nearest(query, keys, k=101)


def test_errors_say_what_was_seen() -> None:
    with pytest.raises(ValueError, match="2 texts have no term of kind 'word' in them"):
        TfIdf(["", "..."])
    with pytest.raises(ValueError, match="kind is 'letters', expected one of 'word', 'char'"):
        TfIdf(TEXTS, kind="letters")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"ngrams is \(3, 2\)"):
        TfIdf(TEXTS, ngrams=(3, 2))
    with pytest.raises(ValueError, match="most is 0"):
        TfIdf(TEXTS, most=0)
