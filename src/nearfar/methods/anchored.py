"""An anchor to the start: pretrained weights are trained further, and samples that were alike stay alike."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.losses.arguments import l2_normalize, upcast_half
from nearfar.methods.method import Batch, Encoded, Method, Step

TEMPERATURE = 0.1  # of the encoder in training
START_TEMPERATURE = 0.05  # of the start: sharper, so that its nearest neighbors count most
_OWN, _START = "anchored_features", "start_features"  # beside what the method encodes


class AnchoredMethod(nn.Module):
    """A method with a second loss: features of a view find the neighbors that the start gives the whole sample.

    Instance discrimination pushes all other samples away, those of the same kind too. `similarity_distillation` holds
    against that with what the start knows.

    Args:
        method: what is trained. Its encoder must be called with each view, the first one first.
        start: the encoder as the run began; a network of its own, which is not trained.
        weight: of the second loss.
    """

    ring = False  # the second loss compares all rows

    def __init__(self, method: Method, start: nn.Module, weight: float) -> None:
        super().__init__()
        self.method, self.weight = method, weight
        self.start = start.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "AnchoredMethod":
        super().train(mode)
        self.start.eval()
        return self

    def encode(self, batch: Batch) -> Encoded:
        """What the method encodes, and (B, F) twice: the encoder's features of the first view, and the start's."""
        if batch.whole is None:
            raise ValueError("the batch has no whole samples, which the anchor compares with")
        found: list[Tensor] = []
        handle = self.method.encoder.register_forward_hook(lambda _, __, h: found.append(h))
        try:
            encoded = self.method.encode(batch)
        finally:
            handle.remove()
        features = torch.cat(found)[: len(batch.index)] if found else None
        if features is None or len(features) < len(batch.index):
            name = type(self.method).__name__
            raise ValueError(f"{name} does not give each view to its encoder, as an anchor needs; set --adapt.anchor 0")
        with torch.no_grad():
            return {**encoded, _OWN: features, _START: self.start(batch.whole)}

    def contrast(self, encoded: Encoded) -> Step:
        step = self.method.contrast({name: x for name, x in encoded.items() if name not in (_OWN, _START)})
        anchor = similarity_distillation(
            upcast_half(encoded[_OWN]),
            upcast_half(encoded[_START]),
            temperature=TEMPERATURE,
            teacher_temperature=START_TEMPERATURE,
        )
        log = {**step.log, "anchor": anchor.detach()}
        if step.candidates:
            log.setdefault("info_nce", step.loss.detach())
        return replace(step, loss=step.loss + self.weight * anchor, log=log)

    def after_step(self, progress: float) -> None:
        self.method.after_step(progress)


def similarity_distillation(h: Tensor, teacher: Tensor, *, temperature: float, teacher_temperature: float) -> Tensor:
    """A scalar: the cross-entropy from the teacher's softmax over the other samples to the student's, mean of the rows.

    With s_ij the cosines of the rows of h, t_ij those of the teacher's, and softmaxes over j other than i,

        - 1/B Σ_i Σ_j softmax(t_i / teacher_temperature)_j · log softmax(s_i / temperature)_j.

    Args:
        h: (B, F) features with a gradient.
        teacher: (B, G) features of the same samples; their gradient is not used.

    Reference: Zheng et al. 2021 (ReSSL), eqs. 3 to 5, https://arxiv.org/abs/2107.09282; here the teacher is the start.
    """
    z, t = l2_normalize(h), l2_normalize(teacher.detach())
    own = torch.eye(len(z), dtype=torch.bool, device=z.device)
    target = (t @ t.T / teacher_temperature).masked_fill(own, -torch.inf).softmax(1)  # (B, B)
    logs = F.log_softmax((z @ z.T / temperature).masked_fill(own, -torch.inf), 1)
    return -(target * logs.masked_fill(own, 0.0)).sum(1).mean()
