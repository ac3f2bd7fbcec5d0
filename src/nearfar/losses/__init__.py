"""Every contrastive loss as a pure function of tensors: no state, no collectives, torch alone.

The softmax losses, SigLIP and SupCon never hold the similarity matrix: their memory is linear in the batch.

All but `batch_triplet` of Euclidean distances, which torch refuses, have exact second derivatives (gradient penalties,
Hessian-vector products). Third derivatives are refused where the sums are computed in tiles; in small batches on a CPU
(up to 128 × 128 entries) torch has them.

- A row without negatives costs 0 in every softmax loss, and gets no gradient; the primitive says -inf.
- `sup_con` takes its mean over the rows that have a positive.
- `vicreg` and `hard_negative` follow the authors' code where it differs from the equation; the docstrings say how.
- A row of zeros gets no gradient through the normalisation, where `F.normalize` would multiply it by 1e12.
- Squared Euclidean similarities are summed in float64: in float32 a small distance between long rows would be lost.
"""

from nearfar.losses.engine.backends import use_engine
from nearfar.losses.engine.similarity import similarity_logsumexp, similarity_logsumexp_two_way
from nearfar.losses.engine.tiles import tile_size
from nearfar.losses.engine.top_k import top_k_similarity
from nearfar.losses.info_nce import decoupled, info_nce, nt_xent, nt_xent_views, symmetric_info_nce
from nearfar.losses.margin import batch_triplet, triplet
from nearfar.losses.negatives import debiased, guided_info_nce, hard_negative, top_k_info_nce
from nearfar.losses.noise_contrastive import estimate_log_normalizer, nce
from nearfar.losses.ranking import cosent
from nearfar.losses.redundancy import barlow_twins, vicreg, vicreg_views
from nearfar.losses.regression import cosine_regression
from nearfar.losses.sigmoid import sigmoid_pairs, similarity_softplus_sum
from nearfar.losses.supervised import sup_con

__all__ = [
    "barlow_twins",
    "batch_triplet",
    "cosent",
    "cosine_regression",
    "debiased",
    "decoupled",
    "estimate_log_normalizer",
    "guided_info_nce",
    "hard_negative",
    "info_nce",
    "nce",
    "nt_xent",
    "nt_xent_views",
    "sigmoid_pairs",
    "similarity_logsumexp",
    "similarity_logsumexp_two_way",
    "similarity_softplus_sum",
    "sup_con",
    "symmetric_info_nce",
    "tile_size",
    "top_k_info_nce",
    "top_k_similarity",
    "triplet",
    "use_engine",
    "vicreg",
    "vicreg_views",
]
