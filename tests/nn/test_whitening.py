"""The transform of embeddings: closed forms, scikit-learn's, and what it refuses."""

import numpy as np
import pytest
import torch
from torch import Tensor

from nearfar.nn.whitening import KINDS, EmbeddingTransform, fit_transform
from tests.support.facts import facts


def rows(n: int = 400, d: int = 6, seed: int = 0) -> Tensor:
    """Correlated, off the origin, of very different scales."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(d, d, generator=generator)
    return torch.randn(n, d, generator=generator) @ mixing * torch.logspace(-1, 1, d) + 5


def fitted(h: Tensor, kind: str, shrinkage: float | None = None) -> EmbeddingTransform:
    found = fit_transform(h, kind, shrinkage=shrinkage)  # type: ignore[arg-type]
    assert found is not None and found.kind == kind
    return found


def test_centered_rows_have_mean_zero_and_keep_their_differences() -> None:
    h = rows()
    out = fitted(h, "centered")(h)
    torch.testing.assert_close(out.mean(0), torch.zeros(6), atol=1e-4, rtol=0)
    torch.testing.assert_close(out[1:] - out[:-1], h[1:] - h[:-1], atol=1e-5, rtol=1e-4)


def test_standardized_features_have_variance_one_and_keep_their_correlations() -> None:
    h = rows()
    out = fitted(h, "standardized", 0)(h)
    torch.testing.assert_close(out.std(0), torch.ones(6), atol=1e-4, rtol=0)
    torch.testing.assert_close(out.T.corrcoef(), h.T.corrcoef(), atol=1e-4, rtol=0)


def test_whitened_rows_have_the_identity_as_covariance() -> None:
    h = rows()
    out = fitted(h, "whitened", 0)(h)
    torch.testing.assert_close(out.mean(0), torch.zeros(6), atol=1e-3, rtol=0)
    torch.testing.assert_close(out.T.cov(), torch.eye(6), atol=1e-3, rtol=0)


def test_whitened_is_scikit_learns_up_to_a_rotation() -> None:
    from sklearn.decomposition import PCA

    h = rows()
    theirs = torch.from_numpy(PCA(whiten=True).fit_transform(h.double().numpy()))
    ours = fitted(h, "whitened", 0)(h).double()
    torch.testing.assert_close(ours @ ours.T, theirs @ theirs.T, atol=2e-3, rtol=1e-3)  # all products, all distances
    rotation = torch.linalg.lstsq(theirs, ours).solution
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(6, dtype=torch.float64), atol=1e-3, rtol=0)


@pytest.mark.parametrize("shrinkage", [0.1, 1.0])
def test_shrinkage_leaves_the_eigenvalues_that_its_formula_says(shrinkage: float) -> None:
    h = rows()
    values = torch.linalg.eigvalsh(h.double().T.cov())
    wanted = values / (values + shrinkage * values.mean())
    found = torch.linalg.eigvalsh(fitted(h, "whitened", shrinkage)(h).double().T.cov())
    torch.testing.assert_close(found, wanted.sort().values, atol=1e-4, rtol=1e-3)


def test_shrinkage_is_stronger_where_samples_are_few() -> None:
    h = rows(12)
    assert torch.equal(fitted(h, "whitened").weight, fitted(h, "whitened", 0.1 + 6 / 12).weight)  # type: ignore[arg-type]


def test_the_weight_is_symmetric_and_ignores_the_order_of_rows() -> None:
    h = rows()
    first, again = fitted(h, "whitened"), fitted(h, "whitened")
    assert first.weight is not None and torch.equal(first.weight, first.weight.T)
    assert torch.equal(first.weight, again.weight) and torch.equal(first.mean, again.mean)  # type: ignore[arg-type]
    shuffled = fitted(h[torch.randperm(len(h), generator=torch.Generator().manual_seed(1))], "whitened")
    torch.testing.assert_close(shuffled.weight, first.weight)


@pytest.mark.parametrize("kind", ["standardized", "whitened"])
@pytest.mark.parametrize("shrinkage", [0, None])
def test_constant_and_doubled_features_stay_finite(kind: str, shrinkage: float | None) -> None:
    h = rows()
    h = torch.cat([h, torch.full((len(h), 1), 3.3), h[:, :1]], 1)  # one constant, one twice
    out = fitted(h, kind, shrinkage)(h)
    assert bool(out.isfinite().all()) and float(out[:, 6].abs().max()) < 1e-2
    if kind == "whitened" and shrinkage == 0:  # the rank is 6: a projection
        values = torch.linalg.eigvalsh(out.double().T.cov())
        torch.testing.assert_close(values, torch.tensor([0.0] * 2 + [1.0] * 6).double(), atol=1e-3, rtol=0)


def test_fewer_rows_than_features() -> None:
    h = rows(4, 6)
    out = fitted(h, "whitened")(torch.cat([h, rows(50, 6, seed=1)]))
    assert bool(out.isfinite().all())
    values = torch.linalg.eigvalsh(fitted(h, "whitened", 0)(h).double().T.cov())
    torch.testing.assert_close(values, torch.tensor([0.0] * 3 + [1.0] * 3).double(), atol=1e-3, rtol=0)


def test_one_dominant_direction_does_not_silence_the_others() -> None:
    h = rows(4000, 64)
    h[:, 0] *= 1e4
    out = fitted(h, "whitened", 0)(h)
    torch.testing.assert_close(out[:, 1:].T.cov().diagonal(), torch.ones(63), atol=0.05, rtol=0)


@pytest.mark.parametrize(
    ("h", "words"),
    [
        (torch.ones(1, 3), "(1, 3) 2"),
        (torch.ones(5), "(5,)"),
        (torch.tensor([[1.0, 2.0], [float("nan"), 0.0], [0.0, 1.0]]), "1 finite"),
        (torch.full((7, 3), 0.1), "7 same"),
    ],
)
def test_what_cannot_be_fitted_is_refused(h: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=facts(words)):
        fit_transform(h, "whitened")


def test_kinds_and_shapes_are_checked() -> None:
    assert KINDS == ("plain", "centered", "standardized", "whitened") and fit_transform(rows(), "plain") is None
    with pytest.raises(ValueError, match=facts("kind 'white'")):
        fit_transform(rows(), "white")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=facts("(3,) (2, 2)")):
        EmbeddingTransform("whitened", torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match=facts("shrinkage -1")):
        fit_transform(rows(), "whitened", shrinkage=-1)
    assert np.isclose(float(EmbeddingTransform("centered", torch.ones(1))(torch.ones(1, 1))), 0)
