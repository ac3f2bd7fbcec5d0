"""Doubted labels and outliers: planted ones are found, and clean data are left alone."""

import math

import pytest
import torch

from nearfar.evaluation.label_errors import find_label_errors, find_outliers, log_ratios


def blobs(noise: float = 0.35, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(400, 16) in four classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(400) % 4
    centers = torch.randn(4, 16, generator=generator)
    return centers[labels] + noise * torch.randn(400, 16, generator=generator), labels


def test_flipped_labels_are_found_with_what_they_should_be() -> None:
    x, true = blobs()
    labels = true.clone()
    flipped = torch.randperm(400, generator=torch.Generator().manual_seed(1))[:20]
    labels[flipped] = (labels[flipped] + 1) % 4
    found = find_label_errors(x, labels)
    assert set(found.rows.tolist()) == set(flipped.tolist())
    torch.testing.assert_close(found.suggested, true[found.rows])
    assert found.judged == 400 and (found.margins.diff() <= 0).all()


def test_clean_labels_are_not_doubted_and_missing_or_rare_ones_not_judged() -> None:
    x, labels = blobs(0.2)
    assert len(find_label_errors(x, labels)) == 0
    labels[:8], labels[8:12] = 7, -1
    found = find_label_errors(x, labels)
    assert found.judged == 388 and not set(found.rows.tolist()) & set(range(12))
    assert find_label_errors(x, torch.zeros(400, dtype=torch.long)).judged == 0


def test_log_ratios_equal_the_definition() -> None:
    p = torch.rand(60, 3, generator=torch.Generator().manual_seed(2)).softmax(1)
    labels = torch.arange(60) % 3
    usual = [float(p[labels == c, c].mean()) for c in range(3)]
    guesses, ratios = log_ratios(p, labels)
    for row, own in enumerate(labels.tolist()):
        relative = {c: float(p[row, c]) / usual[c] for c in range(3)}
        best = max((c for c in range(3) if c != own), key=relative.__getitem__)
        assert int(guesses[row]) == best
        assert float(ratios[row]) == pytest.approx(math.log(relative[best] / relative[own]), abs=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_planted_outliers_are_found(seed: int) -> None:
    x, _ = blobs(0.2, seed)
    x[:5] = torch.randn(5, 16, generator=torch.Generator().manual_seed(seed)) - x.mean(0) * 4
    rows, similarity = find_outliers(x)
    assert set(range(5)) <= set(rows.tolist()) and len(rows) <= 8 and (similarity.diff() >= -0.3).all()
    assert len(find_outliers(x[:8])[0]) == 0
