"""What a frozen encoder makes of each batch, for methods that leave out negatives by it."""

import torch
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.methods import Method
from nearfar.modalities.base import Modality
from nearfar.model.load import load
from nearfar.nn.shard import Shard


class GuideEncoder:
    """An encoder that is not trained, asked for embeddings of the samples of each batch, as they are before any view.

    Args:
        name: of its weights, as `nearfar.load` takes it.
        modality: of the run, which says what the guide is given of each view.
        seed: of the run.
    """

    def __init__(self, name: str, modality: Modality, seed: int, device: torch.device) -> None:
        self.encoder, self.modality, self.seed = load(name, device=device), modality, seed
        if missing := set(modality.queries) - set(self.encoder.modality.queries):
            noun = self.encoder.modality.noun
            raise ValueError(
                f"the guide {name} is an encoder of {noun}, and the run needs one of {' and '.join(missing)}"
            )

    def rows(self, samples: Tensor, source: Dataset, index: Tensor, *, step: int, shard: Shard | None = None) -> Tensor:
        """(B, V, G) of V views, or of one that stands for all; arguments as in `Modality.views`."""
        views = self.modality.guide_items(samples, source, index, seed=self.seed, step=step, shard=shard)
        found = [self.encoder.encode(items, kind=kind) for kind, items in views]
        return torch.stack(found, 1).to(samples.device)


def open_guide(method: Method, modality: Modality, seed: int, device: torch.device) -> GuideEncoder | None:
    """The guide that a method names, if any."""
    return None if method.guide is None else GuideEncoder(method.guide, modality, seed, device)
