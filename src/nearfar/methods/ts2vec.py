"""TS2Vec: a moment of a series is itself in two crops, among other moments and other series, at every scale."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.losses.arguments import check_at_least, upcast_half
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy
from nearfar.methods.toy import toy_method
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.sequence import DilatedEncoder

_NONE = -1e9  # the logit of what is no negative


class TS2Vec(Method):
    """Two crops that overlap, each with half of its moments masked behind the first layer. A moment of the overlap must
    find itself in the other crop among the moments of its series (temporal contrast) and among the same moments of
    other series (instance contrast); then frames are joined in twos by their maximum, and again, up to the whole.

    The batch's only view is the series itself (B, C, T): crops and masks are the views. Series of one id are no
    negatives of each other.

    Args:
        encoder: with `frames(x, keep)`, as `nearfar.nn.sequence.DilatedEncoder`.
        instance: weight of the instance contrast, the authors' alpha; the temporal one has the rest.
        temporal_unit: scales without temporal contrast, the finest first; a crop has at least 2^(unit + 1) steps.
        mask_rate: of moments.
        dropout: of the frames.
        seed: of crops and masks, drawn for each step and sample.

    As in the authors' code, moments behind the end of a shorter series take part.

    Reference: Yue et al. 2022, eqs. 1 to 3 and algorithm 1, https://arxiv.org/abs/2106.10466
    """

    name = "ts2vec"
    when = "single moments of a series matter: anomalies, forecasts, labels that change within a series"
    reference = ("Yue et al. 2022", "https://arxiv.org/abs/2106.10466")
    also_needs = "a dilated backbone"
    modalities = ("series",)
    default_views = {"series": "whole"}
    min_views = max_views = 1
    settings = {"series": {"backbone": "dilated-small"}}
    toy_options = {"dropout": 0.0}
    paper = {
        "backbone": "dilated-deep",
        "optimizer": {
            "name": "adamw",
            "lr": 1e-3,
            "scale_lr": "none",
            "weight_decay": 0.01,
            "decay_all": True,
            "schedule": "constant",
            "warmup_epochs": 0.0,
        },
    }
    host_numbers = ("steps",)
    steps: Tensor  # () with the seed: crops and masks

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int = 0,
        samples: int = 0,
        instance: float = 0.5,
        temporal_unit: int = 0,
        mask_rate: float = 0.5,
        dropout: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (("instance", instance), ("mask_rate", mask_rate)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}, expected a number from 0 to 1")
        check_at_least("temporal_unit", temporal_unit, 0)
        if not isinstance(encoder, DilatedEncoder):
            raise ValueError(
                f"ts2vec needs an encoder with frames that can be masked, and {type(encoder).__name__} has none; "
                "set --backbone dilated-small, dilated or dilated-deep"
            )
        self.encoder: DilatedEncoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.instance, self.temporal_unit, self.mask_rate, self.seed = instance, temporal_unit, mask_rate, seed
        self.register_buffer("steps", torch.tensor(0))

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        return toy_method(cls, rows, encoder=_toy_encoder, views=_toy_views, **{**cls.toy_options, **options})

    @classmethod
    def more_toys(cls) -> dict[str, Toy]:
        return {"dropout": cls.toy(dropout=0.3)}

    def encode(self, batch: Batch) -> Encoded:
        x = batch.views[0]
        crops = self._crops(x.shape[-1])
        offset, kept = (part.to(x.device) for part in self._draw(crops, batch.samples))
        z1, z2 = (self._frames(x, offset, crop, keep) for crop, keep in zip(crops[:2], kept, strict=True))
        return {"z1": z1[:, -crops.overlap :], "z2": z2[:, : crops.overlap], "ids": batch.ids}  # each (B, overlap, F)

    def contrast(self, encoded: Encoded) -> Step:
        z1, z2 = upcast_half(encoded["z1"]), upcast_half(encoded["z2"])
        loss, log = hierarchical_contrast(
            z1, z2, encoded["ids"], instance=self.instance, temporal_unit=self.temporal_unit
        )
        whole1, whole2 = z1.detach().amax(1), z2.detach().amax(1)
        return Step(loss, whole1, whole2, log=log)

    def after_step(self, progress: float) -> None:
        self.set_number("steps", self.number("steps") + 1)

    def _crops(self, steps: int) -> "CropPair":
        """Where both crops begin and end at this step, the same for all samples but for an offset."""
        generator = seeded_generator(self.seed, int(self.number("steps")), 0)

        def draw(low: int, high: int) -> int:
            return int(torch.randint(low, high + 1, (), generator=generator))

        overlap = draw(min(2 ** (self.temporal_unit + 1), steps), steps)
        left = draw(0, steps - overlap)
        begin, end = draw(0, left), draw(left + overlap, steps)
        return CropPair(slice(begin, left + overlap), slice(left, end), overlap, (-begin, steps - end))

    def _draw(self, crops: "CropPair", samples: Sequence[int]) -> tuple[Tensor, Tensor]:
        """(B,) offset and (2, B, T) moments that are kept of each sample, whatever batch it is in."""
        low, high = crops.offsets
        longest = max(crop.stop - crop.start for crop in crops[:2])
        offsets, kept = (
            torch.zeros(len(samples), dtype=torch.long),
            torch.ones(2, len(samples), longest, dtype=torch.bool),
        )
        for row, sample in enumerate(samples):
            generator = seeded_generator(self.seed, int(self.number("steps")), 1 + sample)
            offsets[row] = torch.randint(low, high + 1, (), generator=generator)
            kept[:, row] = torch.rand(2, longest, generator=generator) >= self.mask_rate
        return offsets, kept

    def _frames(self, x: Tensor, offset: Tensor, crop: slice, kept: Tensor) -> Tensor:
        """(B, L, F) of a crop of L steps."""
        place = offset[:, None] + torch.arange(crop.start, crop.stop, device=x.device)  # (B, L)
        part = x.gather(2, place[:, None].expand(-1, x.shape[1], -1))
        frames, _ = self.encoder.frames(part, kept[:, : part.shape[-1]])
        dropped: Tensor = self.dropout(frames.contiguous())  # in the same order of memory on any share of the batch
        return dropped


class CropPair(NamedTuple):
    """Two crops of a step, as the first and the last place of each, before the offset of a sample."""

    first: slice
    second: slice
    overlap: int  # steps: the last of the first crop, the first of the second
    offsets: tuple[int, int]  # least and most


def hierarchical_contrast(
    z1: Tensor, z2: Tensor, ids: Tensor, *, instance: float, temporal_unit: int = 0
) -> tuple[Tensor, dict[str, Tensor]]:
    """() the mean over scales of both contrasts of frames (B, L, F), and both at the finest scale, for the log."""
    total, scales = z1.new_zeros(()), 0
    log: dict[str, Tensor] = {}
    while True:
        across = instance_contrast(z1, z2, ids)
        total = total + instance * across
        if scales >= temporal_unit and z1.shape[1] > 1:
            within = temporal_contrast(z1, z2)
            total = total + (1 - instance) * within
            log.setdefault("temporal", within.detach())
        log.setdefault("instance", across.detach())
        scales += 1
        if z1.shape[1] == 1:
            return total / scales, log
        z1, z2 = (F.max_pool1d(z.transpose(1, 2), 2).transpose(1, 2) for z in (z1, z2))


def instance_contrast(z1: Tensor, z2: Tensor, ids: Tensor) -> Tensor:
    """() a moment of (B, L, F) in its other crop, among both crops of other series at that moment: eq. 2."""
    z = torch.cat([z1, z2]).transpose(0, 1)  # (L, 2B, F)
    both = ids.repeat(2)
    return _info_nce(z @ z.transpose(1, 2), both[:, None] == both, (z1 * z2).sum(2).T)


def temporal_contrast(z1: Tensor, z2: Tensor) -> Tensor:
    """() a moment of (B, L, F) in its other crop, among other moments of both crops of its series: eq. 1."""
    z = torch.cat([z1, z2], 1)  # (B, 2L, F)
    moment = torch.arange(z1.shape[1], device=z.device).repeat(2)
    return _info_nce(z @ z.transpose(1, 2), moment[:, None] == moment, (z1 * z2).sum(2))


def _info_nce(similarity: Tensor, same: Tensor, positive: Tensor) -> Tensor:
    """() the mean over rows of (N, 2M, 2M) inner products, whose positives are (N, M); `same` are no negatives."""
    negatives = similarity.masked_fill(same, _NONE).logsumexp(2)  # (N, 2M)
    return F.softplus(negatives - positive.repeat(1, 2)).mean()


def _toy_encoder() -> DilatedEncoder:
    return DilatedEncoder(2, width=6, depth=2, features=8)


def _toy_views(rows: int, generator: torch.Generator) -> list[Tensor]:
    """One series each, the second shorter than the others."""
    x = torch.randn(rows, 2, 16, generator=generator, dtype=torch.float64)
    x[1, :, 9:] = torch.nan
    return [x]
