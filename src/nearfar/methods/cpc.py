"""CPC: from what a sequence was until now, tell what comes in k steps from what does not."""

from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.losses import info_nce
from nearfar.losses.arguments import check_at_least, check_choice, upcast_half
from nearfar.methods.method import Batch, Encoded, Horizon, Method, Step, Toy
from nearfar.methods.toy import toy_method
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.sequence import CPCEncoder

_ROWS = 1024  # of the nearest horizon, that the health report looks at


class CPC(Method):
    """One matrix W_k for each horizon; InfoNCE of `z_{t+k}ᵀ W_k c_t` over the latents of the batch.

    The batch's first view is one sequence (B, C, T); what is behind the end of a shorter one takes no part.

    Args:
        encoder: with `latents(x)`, `contexts(z)`, `width` and `context_features`, as `nearfar.nn.sequence.CPCEncoder`.
        horizons: K, frames ahead; the paper's 12 of speech. Those that the sequences are too short for are left out.
        negatives: where the other candidates of a horizon come from: "both" the other sequences and the same one at
            other times, "batch": other sequences alone, or "sequence": the same one alone. Two sequences of one id
            are no negatives of each other; of "both", those then have no negatives of their own either.
        positions: times of each sequence to predict from, random at each step; 0: all. They bound the time of a
            step, which grows with the square of the frames in the batch.
        drawn: negatives drawn for each prediction from those that `negatives` allows, with replacement; 0: all of them.
            Rivière et al. 2020 draw 128. A draw that is no negative of the prediction does not count.
        mean_score: the score is the mean, not the sum, over the features of a latent, as theirs is.
        normal_start: the matrices W_k start from a standard normal, and 0.01 of it in the rows that latents are wider
            than contexts by, as theirs do.
        seed: of the positions and the drawn negatives.

    The loss is the mean over horizons; log N - L of each is beside its ceiling log N in the health report. Candidates
    of the same sequence are no independent draws: with them the bound is that of a harder task.

    The recipe "paper" is that of CPC_audio (Rivière et al. 2020, https://arxiv.org/abs/2002.02848) with linear
    predictors: the authors of CPC published no code.

    Reference: van den Oord et al. 2018, eqs. 3 and 4, https://arxiv.org/abs/1807.03748; negatives: its table 2
    """

    name = "cpc"
    when = "views are hard to make: it predicts what comes next"
    reference = ("van den Oord et al. 2018", "https://arxiv.org/abs/1807.03748")
    also_needs = "a backbone with frames"
    modalities = ("series", "sound")
    default_views = {"series": "whole", "sound": "cpc"}
    min_views = max_views = 1
    settings = {"series": {"backbone": "cpc-series"}, "sound": {"backbone": "cpc-16k-small"}}
    short_runs = {
        "series": {"options": {"positions": 16}},
        "sound": {  # of the same recording: what tells speakers apart is of no use; many steps count most
            "options": {"negatives": "sequence"},
            "batch_size": 8,
            "optimizer": {"name": "adamw", "lr": 0.032},
        },
    }
    toy_options = {"horizons": 3, "positions": 4}
    paper = {
        "options": {"drawn": 128, "mean_score": True, "normal_start": True},
        "optimizer": {
            "name": "adamw",
            "lr": 2e-4,
            "scale_lr": "none",
            "weight_decay": 0.0,
            "schedule": "constant",
            "warmup_epochs": 0.0,
        },
    }
    host_numbers = ("steps",)
    steps: Tensor  # () with the seed: the positions

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        horizons: int = 12,
        negatives: Literal["both", "batch", "sequence"] = "both",
        positions: int = 0,
        drawn: int = 0,
        mean_score: bool = False,
        normal_start: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choice("negatives", negatives, ("both", "batch", "sequence"))
        check_at_least("horizons", horizons, 1)
        check_at_least("positions", positions, 0)
        check_at_least("drawn", drawn, 0)
        if drawn and negatives == "sequence":
            raise ValueError(f"drawn is {drawn} and negatives is 'sequence', expected 'both' or 'batch' to draw from")
        if not hasattr(encoder, "latents") or not hasattr(encoder, "contexts"):
            raise ValueError(
                f"cpc needs an encoder with latents(x) and contexts(z), and {type(encoder).__name__} has none; "
                "set --backbone cpc-kernels for series, or cpc-16k for sound"
            )
        self.encoder = encoder
        self.width, self.horizons = int(encoder.width), horizons  # type: ignore[arg-type]
        self.predictors = nn.Linear(int(encoder.context_features), horizons * self.width, bias=False)  # type: ignore[arg-type]
        self.negatives, self.positions, self.seed = negatives, positions, seed
        self.drawn, self.mean_score = drawn, mean_score
        if normal_start:
            self._start_normal()
        self.register_buffer("steps", torch.tensor(0))

    @classmethod
    def paper_settings(cls, modality: str, backbone: str, *, pretrained: bool = False) -> dict[str, Any]:
        settings = super().paper_settings(modality, backbone, pretrained=pretrained)
        return {**settings, "backbone": "cpc-audio"} if modality == "sound" else settings

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        return toy_method(cls, rows, encoder=_toy_encoder, views=_toy_views, **{**cls.toy_options, **options})

    def encode(self, batch: Batch) -> Encoded:
        z, present = self.encoder.latents(batch.views[0])  # type: ignore[operator]
        return {"z": z, "c": self.encoder.contexts(z), "present": present, "ids": batch.ids}  # type: ignore[operator]

    def contrast(self, encoded: Encoded) -> Step:
        z, c, ids = upcast_half(encoded["z"]), encoded["c"], encoded["ids"]
        chosen = self._chosen(encoded["present"])  # (B, L)
        found = []
        for k in range(1, min(self.horizons, z.shape[1] - 1) + 1):
            there = chosen[:, :-k] & encoded["present"][:, k:]  # (B, L - k): predicts a frame that is one
            if bool(there.any()):
                w = self.predictors.weight[(k - 1) * self.width : k * self.width]  # (width, context)
                prediction = upcast_half(F.linear(c[:, :-k][there], w))  # (R, width)
                found.append(self._horizon(k, prediction, z[:, k:][there], there.nonzero()[:, 0], ids))
        if not found:
            raise ValueError(f"sequences have {z.shape[1]} frames, expected at least 2: what comes is one frame ahead")
        loss = torch.stack([horizon.loss for horizon in found]).mean()
        spread = torch.linspace(0, len(found[0].query) - 1, min(_ROWS, len(found[0].query))).long()
        return Step(
            loss,
            found[0].query[spread],
            found[0].key[spread],
            horizons=tuple(replace(horizon, loss=horizon.loss.detach()) for horizon in found),
        )

    def after_step(self, progress: float) -> None:
        self.set_number("steps", self.number("steps") + 1)

    def _chosen(self, present: Tensor) -> Tensor:
        """(B, L), the times to predict from: those of frames, or of each sequence a few, drawn for this step."""
        if not self.positions:
            return present
        generator = seeded_generator(self.seed, int(self.number("steps")), 0)
        chance = torch.rand(present.shape, generator=generator).to(present.device)
        chance = chance.masked_fill(~F.pad(present[:, 1:], (0, 1)), -1.0)  # the last frame predicts nothing
        lowest = chance.topk(min(self.positions, chance.shape[1]), dim=1).values[:, -1:]
        return (chance >= lowest) & (chance >= 0)

    def _horizon(self, k: int, prediction: Tensor, target: Tensor, sequence: Tensor, ids: Tensor) -> Horizon:
        """The task of one horizon: (R, width) predictions and what came, of the sequences (R,)."""
        if self.mean_score:
            prediction = prediction / self.width
        if self.negatives == "sequence":
            loss = _within(prediction, target, sequence)
            row_ids, among = torch.arange(len(sequence), device=sequence.device), sequence
        else:
            _, group, count = ids.unique(return_inverse=True, return_counts=True)
            row_ids, among = group[sequence], torch.zeros_like(sequence)
            if self.negatives == "both":  # but what shares its id with another sequence: each row for itself
                own = len(ids) + torch.arange(len(sequence), device=sequence.device)
                row_ids = torch.where((count[group] > 1)[sequence], row_ids, own)
            if self.drawn:
                loss = self._against_drawn(k, prediction, target, row_ids)
            else:
                loss = info_nce(prediction, target, temperature=1.0, similarity="dot", ids=row_ids)
        return Horizon(k, loss, prediction.detach(), target.detach(), row_ids, among, self.drawn)

    def _against_drawn(self, k: int, prediction: Tensor, target: Tensor, row_ids: Tensor) -> Tensor:
        """InfoNCE of (R, width) predictions, each among what came and a few targets drawn for it."""
        index = self._draws(k, len(target)).to(target.device)  # (R, n)
        positive = (prediction * target).sum(1, keepdim=True)  # (R, 1)
        others = torch.einsum("rd,rnd->rn", prediction, target[index])
        others = others.masked_fill(row_ids[index] == row_ids[:, None], -torch.inf)
        return (torch.cat([positive, others], 1).logsumexp(1, keepdim=True) - positive).mean()

    def _draws(self, k: int, rows: int) -> Tensor:
        """(R, n), which targets of horizon k are drawn for each of its R predictions at this step."""
        generator = seeded_generator(self.seed, int(self.number("steps")), k)
        return torch.randint(rows, (rows, self.drawn), generator=generator)

    @torch.no_grad()
    def _start_normal(self) -> None:
        matrices = self.predictors.weight.view(self.horizons, self.width, -1)
        matrices.normal_()
        matrices[:, matrices.shape[2] :] *= 0.01


def _within(prediction: Tensor, target: Tensor, sequence: Tensor) -> Tensor:
    """InfoNCE of rows among those of their own sequence: one block of similarities for each, and nothing between."""
    count = sequence.bincount()
    count = count[count > 0]  # (S,)
    place = torch.arange(int(count.max()), device=sequence.device) < count.unsqueeze(1)  # (S, n)
    p, t = (x.new_zeros(*place.shape, x.shape[1]).masked_scatter(place.unsqueeze(2), x) for x in (prediction, target))
    scores = (p @ t.transpose(1, 2)).masked_fill(~place.unsqueeze(1), -torch.inf)  # (S, n, n)
    return F.cross_entropy(scores[place], place.nonzero()[:, 1])


def _toy_encoder() -> CPCEncoder:
    return CPCEncoder(2, kernels=(3, 2), strides=(1, 2), width=6, context=8)


def _toy_views(rows: int, generator: torch.Generator) -> list[Tensor]:
    """One sequence each, the second shorter than the others."""
    x = torch.randn(rows, 2, 16, generator=generator, dtype=torch.float64)
    x[1, :, 9:] = torch.nan
    return [x]
