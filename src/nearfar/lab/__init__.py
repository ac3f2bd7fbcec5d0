"""The mathematics made runnable: information, its bounds, the gradient, the sphere, noise-contrastive estimation.

`information` and `probability` are of tables and samples, `proof` counts the InfoNCE bound out, `estimators` are bounds
of mutual information with critics, `gradient` and `sphere` have closed forms for what the losses do, `nce` fits a
density. `experiments` puts each beside what theory gives; `nearfar lab NAME` runs one.
"""

from nearfar.lab.information import (
    binary_cross_entropy,
    conditional_entropy,
    cross_entropy,
    entropy,
    joint_entropy,
    kl_divergence,
    mutual_information,
    perplexity,
    sampled_entropy,
    sampled_mutual_information,
)
from nearfar.lab.probability import bayes, conditional, frequencies, marginal
from nearfar.lab.proof import contrastive_task

__all__ = [
    "bayes",
    "binary_cross_entropy",
    "conditional",
    "conditional_entropy",
    "contrastive_task",
    "cross_entropy",
    "entropy",
    "frequencies",
    "joint_entropy",
    "kl_divergence",
    "marginal",
    "mutual_information",
    "perplexity",
    "sampled_entropy",
    "sampled_mutual_information",
]
