"""CLAP: a sound must find its caption among those of the batch, and a caption its sound."""

from nearfar.methods.clip import CLIP


class CLAP(CLIP):
    """CLIP of sounds: the same loss on a tower of sounds and one of texts.

    The projections into the joint space are linear, as CLIP's; the authors' have a hidden layer.

    Recipe "paper": rate and decay of the authors' training scripts (LAION-AI/CLAP), whose warm-up is of 3,200 steps.

    Reference: Wu et al. 2023, eq. 1, https://arxiv.org/abs/2211.06687; Elizalde et al. 2022,
    https://arxiv.org/abs/2206.04769
    """

    name = "clap"
    when = "sounds have captions: for search by words, and classes that have only names"
    reference = ("Wu et al. 2023", "https://arxiv.org/abs/2211.06687")
    modalities = ("sound-text",)
    paper = {
        "optimizer": {
            "name": "adamw",
            "lr": 1e-4,
            "scale_lr": "none",
            "weight_decay": 0.0,
            "warmup_ratio": 0.1,
        },
    }
    paper_views = {}
