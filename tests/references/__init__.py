"""Every loss as its paper defines it: plain loops over rows, in float64, sharing no code with the package.

Each returns the row losses (or the scalar where the definition has no rows), built of torch scalars so that
autograd gives a reference gradient too.
"""

from tests.references.margin import batch_triplet, triplet
from tests.references.noise import log_normalizer, nce
from tests.references.pairs import cosine_regression, sigmoid_pairs
from tests.references.similarity import (
    dot,
    similarity_logsumexp,
    similarity_logsumexp_two_way,
    similarity_softplus_sum,
    top_k_similarity,
)
from tests.references.softmax import (
    debiased,
    decoupled,
    hard_negative,
    info_nce,
    nt_xent,
    sup_con,
    symmetric_info_nce,
    top_k_info_nce,
)
from tests.references.statistics import barlow_twins, vicreg

__all__ = [
    "barlow_twins",
    "batch_triplet",
    "cosine_regression",
    "debiased",
    "decoupled",
    "dot",
    "hard_negative",
    "info_nce",
    "log_normalizer",
    "nce",
    "nt_xent",
    "sigmoid_pairs",
    "similarity_logsumexp",
    "similarity_logsumexp_two_way",
    "similarity_softplus_sum",
    "sup_con",
    "symmetric_info_nce",
    "top_k_info_nce",
    "top_k_similarity",
    "triplet",
    "vicreg",
]
