"""Hard negatives for one view: most of the hardest are never looked at."""

import functools

import torch
from torch import Tensor

from nearfar.losses import top_k_info_nce, top_k_similarity
from nearfar.losses.arguments import l2_normalize
from tests.losses.agreement import rows
from tests.pitfalls.page import Numbers, as_told, code_of

PAIRS, TAU, K = 256, 0.5, 5


def hardest(z1: Tensor, z2: Tensor) -> Tensor:
    """(2B,) of each view the number of its hardest negative among all views."""
    z, ids = l2_normalize(torch.cat([z1, z2])), torch.arange(len(z1)).repeat(2)
    return top_k_similarity(z, z, k=1, query_ids=ids, key_ids=ids)[1][:, 0]


@functools.cache
def damage() -> Numbers:
    met = code_of("hard_negatives")["hardest_of_one_view"]
    z1, noise = rows(2, PAIRS, 16)
    z2 = 1.5 * (z1 + noise) + 0.3  # the second view's cloud has another place
    found = hardest(z1, z2)
    compared = (torch.arange(2 * PAIRS) < PAIRS) & (found >= PAIRS)  # of z1, and its hardest in z2
    wrong = float((met(z1, z2, TAU, K) - met(z2, z1, TAU, K)).abs())
    right = float((top_k_info_nce(z1, z2, temperature=TAU, k=K) - top_k_info_nce(z2, z1, temperature=TAU, k=K)).abs())
    return {
        "hardest negatives compared, wrong": float(compared.double().mean()),
        "hardest negatives compared, right": 1.0 if _sees_all(z1, z2, found) else 0.0,
        "views exchanged, wrong": wrong,
        "views exchanged, right": 0.0 if right < 1e-12 else right,
    }


def _sees_all(z1: Tensor, z2: Tensor, expected: Tensor) -> bool:
    """With k = 1 the loss of each view is that of its hardest negative among all."""
    z = l2_normalize(torch.cat([z1, z2]))
    positive, negative = (z * z.roll(len(z1), 0)).sum(1), (z * z[expected]).sum(1)
    loss = top_k_info_nce(z1, z2, temperature=TAU, k=1, reduction="none")
    return bool(torch.allclose(loss, torch.log1p(((negative - positive) / TAU).exp()), atol=1e-10))


def claim(numbers: Numbers) -> None:
    assert numbers["hardest negatives compared, wrong"] < 0.3 < 1 == numbers["hardest negatives compared, right"]
    assert numbers["views exchanged, wrong"] > 1e-3 and numbers["views exchanged, right"] == 0


def test_most_hardest_negatives_are_never_seen() -> None:
    as_told("hard_negatives", damage(), claim)
