"""Projection and prediction heads: small multi-layer perceptrons, as the papers build them."""

from typing import Literal

from torch import Tensor, nn


def projector(
    features: int,
    hidden: int,
    out: int,
    *,
    layers: int = 2,
    batch_norm: bool = True,
    last_batch_norm: bool = False,
    last_affine: bool | Literal["scale"] = True,
    last_bias: bool = True,
) -> nn.Sequential:
    """`layers` linear layers from h (B, features) over `hidden` to z (B, out), with ReLU between them.

    Args:
        batch_norm: after each hidden layer, before its ReLU.
        last_batch_norm: also after the last layer (SimCLR, SimSiam, MoCo v3).
        last_affine: learned scale and shift in the last batch-norm; "scale": the scale alone (SimCLR); SimSiam
            and MoCo v3 have neither.
        last_bias: of the last linear layer; BYOL's and MoCo v3's heads have none. A last batch-norm leaves it out, too.

    A linear layer before a batch-norm has no bias: the batch-norm would remove it.

    References:
        SimCLR: 2 layers, https://arxiv.org/abs/2002.05709, B.9; SimCLR v2: 3, https://arxiv.org/abs/2006.10029;
        MoCo v2: 2 without batch-norm, https://arxiv.org/abs/2003.04297; BYOL: 2, https://arxiv.org/abs/2006.07733;
        SimSiam: 3 with a last batch-norm, https://arxiv.org/abs/2011.10566; Barlow Twins and VICReg: 3,
        https://arxiv.org/abs/2103.03230, https://arxiv.org/abs/2105.04906.

    >>> projector(8, 16, 4, layers=3)[-1]
    Linear(in_features=16, out_features=4, bias=True)
    """
    if layers < 1:
        raise ValueError(f"layers is {layers}, expected at least 1")
    widths = [features, *[hidden] * (layers - 1), out]
    parts: list[nn.Module] = []
    for i in range(layers):
        last = i == layers - 1
        normed = last_batch_norm if last else batch_norm
        parts.append(nn.Linear(widths[i], widths[i + 1], bias=not normed and (last_bias or not last)))
        if normed:
            norm = nn.BatchNorm1d(widths[i + 1], affine=bool(last_affine) or not last)
            if last and last_affine == "scale":
                norm.bias.requires_grad_(False)  # stays 0
            parts.append(norm)
        if not last:
            parts.append(nn.ReLU(inplace=True))
    return nn.Sequential(*parts)


def predictor(
    dim: int, hidden: int, out: int | None = None, *, last_batch_norm: bool = False, last_bias: bool = True
) -> nn.Sequential:
    """Two layers from z (B, dim) to p (B, out), `out` being `dim` unless given; batch-norm and ReLU between them.

    BYOL widens (256 to 4096 to 256), SimSiam narrows to a quarter (2048 to 512 to 2048), MoCo v3's of ViTs
    ends in a batch-norm without scale and shift.
    """
    out = dim if out is None else out
    return projector(dim, hidden, out, last_batch_norm=last_batch_norm, last_affine=False, last_bias=last_bias)


class EncoderWithHead(nn.Module):
    """An encoder that ends in layers of a projection head, x (B, ...) to h (B, features), as SimCLR v2 has it.

    Args:
        encoder: x (B, ...) to (B, F).
        head: (B, F) to (B, features).
    """

    def __init__(self, encoder: nn.Module, head: nn.Module, features: int) -> None:
        super().__init__()
        self.backbone, self.head, self.num_features = encoder, head, features
        for name in ("max_length", "vocab_size"):  # of encoders of texts: what they read
            if hasattr(encoder, name):
                setattr(self, name, getattr(encoder, name))

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.head(self.backbone(x))
        return h


def hidden_layers(features: int, hidden: int, layers: int) -> nn.Sequential:
    """The first layers of a `projector` with batch-norm, each with its ReLU: (B, features) to (B, hidden)."""
    widths = [features] + [hidden] * layers
    parts: list[nn.Module] = []
    for i in range(layers):
        parts += [nn.Linear(widths[i], hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)
