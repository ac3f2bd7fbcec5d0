"""tf-idf against scikit-learn's, term by term."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from nearfar.evaluation.knn import knn_predict, knn_votes
from nearfar.evaluation.linear import linear_probe
from nearfar.evaluation.logistic import fit_logistic
from nearfar.evaluation.protocols.similarity import correlation, pair_cosines
from nearfar.modalities.text.data import TextDataset
from nearfar.modalities.text.tfidf import TfIdf, TfIdfBaseline, sparse_nearest
from nearfar.modalities.text.tokenizer import Tokenizer
from tests.evaluation.bars import evaluate
from tests.support.facts import facts

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


def test_rows_are_scikit_learns() -> None:
    ours, theirs = TfIdf(TEXTS), TfidfVectorizer(token_pattern=r"(?u)\b\w+\b").fit(TEXTS)
    assert list(ours.terms) == theirs.get_feature_names_out().tolist()
    for texts in (TEXTS, OTHERS):
        np.testing.assert_allclose(ours(texts).numpy(), theirs.transform(texts).toarray(), atol=1e-6)
        torch.testing.assert_close(ours.sparse(texts).to_dense(), ours(texts))


def test_cosines_of_pairs_are_those_of_the_dense_rows() -> None:
    encoder = TfIdf(TEXTS)
    first, second = TEXTS, TEXTS[1:] + TEXTS[:1]
    found = encoder.cosines(first, second)
    torch.testing.assert_close(found, pair_cosines(encoder(first), encoder(second)), atol=2e-6, rtol=0)
    assert encoder.cosines(["a man"], ["man a"]).tolist() == [1.0]
    assert correlation(pair_cosines(encoder(first), encoder(second)), torch.arange(7.0)).metrics["Spearman"].n == 7
    with pytest.raises(ValueError, match=facts("1 2 text")):
        encoder.cosines(["a"], ["a", "b"])


def test_sparse_neighbours_are_the_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    words = [f"w{n}" for n in range(60)]
    texts = [" ".join(words[i] for i in torch.randint(60, (9,), generator=generator)) for _ in range(150)]
    labels = torch.randint(4, (100,), generator=generator)
    encoder = TfIdf(texts[:100])
    keys, query = encoder.sparse(texts[:100]), encoder.sparse(texts[100:])
    for entries in (1, 700, 1 << 22):
        monkeypatch.setattr("nearfar.modalities.text.tfidf._ENTRIES", entries)
        values, rows = sparse_nearest(query, keys, k=5)
        dense = query.to_dense() @ keys.to_dense().T
        torch.testing.assert_close(values, dense.topk(5).values)
        torch.testing.assert_close(dense.gather(1, rows), values)
    ours = knn_votes(values, labels[rows], temperature=0.07, classes=4)
    theirs = knn_predict(keys.to_dense(), labels, query.to_dense(), k=5, classes=4)
    assert (ours.argmax(1) == theirs.argmax(1)).float().mean() > 0.9  # ties of similarity may go either way
    with pytest.raises(ValueError, match=facts("k 101 1 100")):
        sparse_nearest(query, keys, k=101)


def made_up(count: int, seed: int) -> tuple[list[str], torch.Tensor]:
    """Texts of four kinds, with words of their kind among words of all."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    draws = torch.randint(30, (count, 8), generator=generator)
    own = torch.randint(6, (count, 2), generator=generator)
    texts = [
        " ".join([*(f"w{n}" for n in row), *(f"k{k}x{n}" for n in mine)])
        for row, mine, k in zip(draws.tolist(), own.tolist(), labels.tolist(), strict=True)
    ]
    return texts, labels


@pytest.mark.parametrize("c", [1.0, 100.0])
def test_logistic_regression_of_sparse_rows_is_scikit_learns(c: float, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = made_up(400, 0)
    x = TfIdf(texts).sparse(texts)
    theirs = LogisticRegression(C=c, tol=1e-8, max_iter=5000).fit(x.to_dense().double().numpy(), labels.numpy())
    for entries in (1 << 22, 400):  # in one part, and in several
        monkeypatch.setattr("nearfar.evaluation.logistic._LOGITS", entries)
        weight, bias = fit_logistic(x, labels, classes=4, c=c, iterations=1000, tolerance=1e-5)
        ours = (torch.sparse.mm(x.double(), weight.T) + bias).softmax(1).numpy()
        np.testing.assert_allclose(ours, theirs.predict_proba(x.to_dense().double().numpy()), atol=2e-3)


def test_a_probe_of_sparse_rows_finds_what_scikit_learns_does(monkeypatch: pytest.MonkeyPatch) -> None:
    (texts, labels), (others, truth) = made_up(600, 0), made_up(300, 1)
    encoder = TfIdf([*texts, *others])
    x, test = encoder.sparse(texts), encoder.sparse(others)
    probe = linear_probe(x, labels, classes=4)
    ours = float((probe(test).argmax(1) == truth).float().mean())
    theirs = LogisticRegression(C=probe.c, max_iter=1000).fit(x.to_dense().numpy(), labels.numpy())
    assert ours == pytest.approx(theirs.score(test.to_dense().numpy(), truth.numpy()), abs=0.01)
    assert ours > 0.9 and probe.c in (1.0, 10.0, 100.0) and probe.validation is not None
    monkeypatch.setattr("nearfar.evaluation.linear._WEIGHTS", 4 * 40)  # the forty words that most texts have
    few = linear_probe(x, labels, classes=4)
    kept = few.weight.abs().sum(0).nonzero()[:, 0].tolist()
    often = x.to_dense().bool().sum(0).numpy()
    assert len(kept) == 40 and min(often[kept]) >= max(np.delete(often, kept))
    assert few(test).shape == (300, 4)


def test_words_are_measured_as_scikit_learn_would_use_them() -> None:
    """Terms of both parts, sparse rows, all readouts: the numbers of TfidfVectorizer and a classifier on it."""
    (texts, labels), (others, truth) = made_up(200, 0), made_up(100, 1)
    texts[3] += " rare" + " long" * 200  # the tokenizer would cut it
    others[5] += " newword"
    tokenizer = Tokenizer.train(texts, vocab_size=300, max_length=16)
    train, test = (
        TextDataset(said, labels=of, classes=list("abcd"), tokenize=tokenizer.encode)
        for said, of in ((texts, labels), (others, truth))
    )
    words = TfIdfBaseline(train, test, tokenizer)
    theirs = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b").fit([*texts, *others])
    assert list(words.tfidf.terms) == theirs.get_feature_names_out().tolist() and "newword" in words.tfidf.terms
    rows = torch.tensor([3, 7, 199])
    found = words.sparse_rows(train, rows)
    assert found.is_sparse
    np.testing.assert_allclose(found.to_dense(), theirs.transform(texts)[rows.numpy()].toarray(), atol=1e-6)
    results = evaluate(
        {"untrained": words, "raw": words},
        train,
        test,
        prepare=lambda tokens: tokens,
    )
    x, q = (torch.from_numpy(theirs.transform(said).toarray()).float() for said in (texts, others))
    knn = (knn_predict(x, labels, q, k=20, classes=4).argmax(1) == truth).float().mean()
    assert results.value("raw", "knn", "accuracy") == pytest.approx(float(knn), abs=0.02)
    assert results.value("raw", "linear", "accuracy") > 0.7


def test_pairs_are_compared_by_the_idf_of_the_compared() -> None:
    first, second = TEXTS[:4], OTHERS
    unlike = TextDataset(["a a a", "flute flute"] * 20)
    pairs = TextDataset(first, partners=second, scores=torch.arange(4.0))
    tokenizer = Tokenizer.train(first, vocab_size=260)
    words = TfIdfBaseline(unlike, pairs, tokenizer)
    theirs = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b").fit([*first, *second])
    expected = np.asarray(theirs.transform(first).multiply(theirs.transform(second)).sum(1)).ravel()
    np.testing.assert_allclose(words.cosines(first, second), expected, atol=1e-6)


def test_errors_say_what_was_seen() -> None:
    with pytest.raises(ValueError, match=facts("2 texts word")):
        TfIdf(["", "..."])
