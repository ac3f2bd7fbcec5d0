"""The mathematics made runnable: information, its bounds, the gradient, the sphere, noise-contrastive estimation.

`information` and `probability` are of tables, `samples` of labels that were drawn, `neighbours` of numbers that were;
`proof` counts the InfoNCE bound out, `estimators` are bounds of mutual information with critics, `gradient` and
`sphere` have closed forms for what the losses do, `nce` fits a density. `experiments` puts each beside what theory
gives; `nearfar lab NAME` runs one.
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
)
from nearfar.lab.neighbours import (
    neighbour_conditional_entropy,
    neighbour_cross_entropy,
    neighbour_entropy,
    neighbour_kl_divergence,
    neighbour_mutual_information,
)
from nearfar.lab.probability import bayes, conditional, frequencies, frequencies_side_by_side, marginal
from nearfar.lab.proof import contrastive_task
from nearfar.lab.samples import (
    sampled_conditional_entropy,
    sampled_cross_entropy,
    sampled_entropy,
    sampled_kl_divergence,
    sampled_mutual_information,
    sampled_perplexity,
)

__all__ = [
    "bayes",
    "binary_cross_entropy",
    "conditional",
    "conditional_entropy",
    "contrastive_task",
    "cross_entropy",
    "entropy",
    "frequencies",
    "frequencies_side_by_side",
    "joint_entropy",
    "kl_divergence",
    "marginal",
    "mutual_information",
    "neighbour_conditional_entropy",
    "neighbour_cross_entropy",
    "neighbour_entropy",
    "neighbour_kl_divergence",
    "neighbour_mutual_information",
    "perplexity",
    "sampled_conditional_entropy",
    "sampled_cross_entropy",
    "sampled_entropy",
    "sampled_kl_divergence",
    "sampled_mutual_information",
    "sampled_perplexity",
]
