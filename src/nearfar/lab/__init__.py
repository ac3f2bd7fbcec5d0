r"""The mathematics made runnable: information, its bounds, the gradient, the sphere, noise-contrastive estimation.

`information` and `probability` work on tables, `samples` on drawn labels, `neighbors` on drawn numbers. `proof` counts
the InfoNCE bound out, `estimators` are bounds of mutual information with critics, `gradient` and `sphere` have
closed forms of the losses, `nce` fits a density. `experiments` compares each with theory; `nearfar lab NAME` runs one.

- **A claim is two numbers, a relation and a tolerance**, and judges itself; an experiment gives claims, tables and
  lines, the command prints and draws them. Tolerances are standard errors where there are any; those set by hand are
  named in `docs/lab.md`.
- **Closed forms before training.** Where the best critic or the whole distribution is known, nothing is trained; one
  function, $\mathbb{E}[e^{\kappa \cos \theta}]$ on the sphere, gives loss, gradient noise, uniformity and the shares
  of negatives.
- **No chance of the caller's** is used: weights and data come from the experiment's own generator.
- **A claim has a kind**: theory, which data could contradict, an identity, or a threshold of ours. Tests make
  formula, critic, data or training wrong and ask that claims fail, so that agreement means something.
- **A step says whether its batch was fair** (`Step.fair`): whether all others were negatives. Only then is log N - L
  a bound, and shown as one.
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
from nearfar.lab.neighbors import (
    neighbor_conditional_entropy,
    neighbor_cross_entropy,
    neighbor_entropy,
    neighbor_kl_divergence,
    neighbor_mutual_information,
)
from nearfar.lab.probability import bayes, conditional, frequencies, frequencies_over_union, marginal
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
    "frequencies_over_union",
    "joint_entropy",
    "kl_divergence",
    "marginal",
    "mutual_information",
    "neighbor_conditional_entropy",
    "neighbor_cross_entropy",
    "neighbor_entropy",
    "neighbor_kl_divergence",
    "neighbor_mutual_information",
    "perplexity",
    "sampled_conditional_entropy",
    "sampled_cross_entropy",
    "sampled_entropy",
    "sampled_kl_divergence",
    "sampled_mutual_information",
    "sampled_perplexity",
]
