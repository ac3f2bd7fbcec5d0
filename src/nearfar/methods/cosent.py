"""CoSENT: pairs with a higher score must be more similar than pairs with a lower one."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from nearfar.losses import cosent
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy
from nearfar.methods.nested import NestedDims
from nearfar.methods.toy import text_pair_views, toy_method, toy_text_encoder


class CoSENT(Method):
    """Learns from scores, such as those that people give pairs of sentences; only their order counts.

    The batch's views are the two of each pair, its labels the scores. The loss compares the embeddings that the user
    keeps: there is no head.

    Args:
        encoder: x (B, ...) to h (B, features).
        temperature: divides the cosine similarities; 0.05 is the authors' scale of 20. Runs from weights have 0.2.
        dims, dim_weights: widths at which the first numbers of an embedding are compared, too (`NestedDims`).

    Reference: Huang et al. 2024, https://doi.org/10.1109/TASLP.2024.3402087
    """

    name = "cosent"
    when = "you have pairs of texts with similarity scores"
    reference = ("Huang et al. 2024", "https://doi.org/10.1109/TASLP.2024.3402087")
    modalities = ("text",)
    needs_scores = True
    settings = {"text": {"embedding": "plain"}}  # the loss has seen the embeddings as they are
    # An encoder that is right about most pairs is wrong about some by far: at the authors' temperature the sum over
    # pairs is that of these few, and the cheapest step makes all cosines equal (benchmarks/results/sentences.md).
    from_weights = {"options": {"temperature": 0.2}, "batch_size": 32, "text": {"dropout": 0.0}}
    toy_options = {"dims": [16, 4]}

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.05,
        dims: Sequence[int] = (),
        dim_weights: Sequence[float] = (),
    ) -> None:
        super().__init__()
        self.encoder, self.temperature = encoder, temperature
        self.nested = NestedDims(dims, dim_weights, features)

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        return toy_method(cls, rows, encoder=toy_text_encoder, views=text_pair_views, **{**cls.toy_options, **options})

    def encode(self, batch: Batch) -> Encoded:
        if batch.labels is None:
            raise ValueError("CoSENT learns from the scores of pairs, and the batch has none; give them as its labels")
        first, second = batch.views[:2]
        return {"z1": self.encoder(first), "z2": self.encoder(second), "scores": batch.labels}

    def contrast(self, encoded: Encoded) -> Step:
        return self.nested.contrast(self._contrast, encoded)

    def _contrast(self, encoded: Encoded) -> Step:
        z1, z2 = encoded["z1"], encoded["z2"]
        loss = cosent(z1, z2, encoded["scores"], temperature=self.temperature)
        return Step(loss, z1.detach(), z2.detach())
