"""Noise that is of the query's own sample."""

import pytest
import torch

from nearfar.losses import nce
from tests.support.facts import facts


def test_noise_of_the_querys_id_does_not_count() -> None:
    torch.manual_seed(0)
    query, positive = torch.randn(2, 4, 6, dtype=torch.float64)
    noise, noise_ids, ids = torch.randn(9, 6, dtype=torch.float64), torch.arange(9) % 5, torch.arange(4)
    options = {"temperature": 0.3, "bank_size": 40, "log_normalizer": 4.0, "reduction": "none"}
    found = nce(query, positive, noise, ids=ids, noise_ids=noise_ids, **options)  # type: ignore[arg-type]
    for i in range(4):
        mine = noise[noise_ids != i]
        bias = -4.0 - torch.tensor(9 / 40, dtype=torch.float64).log()  # m is what was drawn

        def logit(x: torch.Tensor, i: int = i, bias: torch.Tensor = bias) -> torch.Tensor:
            return torch.cosine_similarity(query[i, None], x) / 0.3 + bias

        softplus = torch.nn.functional.softplus
        torch.testing.assert_close(found[i], softplus(-logit(positive[i, None])).sum() + softplus(logit(mine)).sum())


def test_ids_come_in_pairs_and_for_shared_noise() -> None:
    z = torch.randn(4, 6)
    with pytest.raises(ValueError, match=facts("noise_ids")):
        nce(z, z, z, temperature=0.1, bank_size=4, ids=torch.arange(4))
    with pytest.raises(ValueError, match=facts("(m, D)")):
        nce(z, z, torch.randn(4, 3, 6), temperature=0.1, bank_size=4, ids=torch.arange(4), noise_ids=torch.arange(3))
