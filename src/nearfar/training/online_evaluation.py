"""Evaluation on validation samples during training, with labels or without: it chooses the best checkpoint."""

from contextlib import nullcontext

import torch
from torch import Tensor

from nearfar.data.dataset import Dataset
from nearfar.evaluation.embedding import dropout_enabled, embed
from nearfar.evaluation.geometry import effective_rank
from nearfar.evaluation.knn import knn_predict
from nearfar.evaluation.protocols.similarity import pair_cosines, spearman
from nearfar.losses import nt_xent
from nearfar.methods.method import Method
from nearfar.modalities.base import Modality

_TEMPERATURE = 0.1  # of the validation InfoNCE; any, as long as it stays


class OnlineEvaluation:
    """Validation InfoNCE and RankMe of the encoder's output, and k-NN accuracy of labels or the rank correlation of
    scores, where there are some.

    Args:
        validation: samples that are not trained on.
        bank: some training samples, the neighbours of the k-NN; None without labels.
        modality: makes views as in training, from a seed of their own, the same every time.
        times: evaluations in a run, at most.

    If the two views are identical, as of sentences whose only augmentation is dropout, dropout stays on, from a seed:
    without it a sentence would be compared with itself, and the InfoNCE would say nothing.
    """

    def __init__(self, validation: Dataset, bank: Dataset | None, modality: Modality, times: int = 10) -> None:
        self.validation, self.bank, self.modality, self.times = validation, bank, modality, times
        self._last = 0

    def due(self, step: int, total: int, *, epoch_ends: bool, logged: bool) -> bool:
        """Whether it is time for another evaluation: at the end of an epoch, not too often, and at that of the run.

        Args:
            epoch_ends: with this step.
            logged: whether other things are measured at this step anyway.
        """
        if logged or not epoch_ends:
            return epoch_ends or step == total
        if step - self._last < total / self.times:
            return False
        self._last = step
        return True

    @torch.no_grad()
    def measure(self, method: Method) -> dict[str, float]:
        encoder, device = method.encoder, next(method.parameters()).device
        training = encoder.training
        encoder.eval()
        try:
            found = {"validation_loss": self._info_nce(method, device)}
            h = self._embed(method, self.validation, device)
            found["validation_rank"] = float(effective_rank(h))
            found["validation_rank_limit"] = float(min(h.shape))
            if self.bank is not None and self.bank.labels is not None and self.validation.labels is not None:
                classes = int(max(self.bank.labels.max(), self.validation.labels.max())) + 1
                scores = knn_predict(self._embed(method, self.bank, device), self.bank.labels, h, k=20, classes=classes)
                found["knn"] = float((scores.argmax(1) == self.validation.labels).float().mean())
            if self.validation.scores is not None and self.validation.partners is not None:
                found["spearman"] = self._spearman(method, self.validation.scores, device)
        finally:
            encoder.train(training)
        return found

    @staticmethod
    def score(found: dict[str, float | list[float]]) -> float | None:
        """Higher is better: Spearman's correlation where pairs have scores, k-NN where there are labels; else minus the
        validation loss, unless the rank is gone."""
        for name in ("spearman", "knn"):
            if isinstance(value := found.get(name), float):
                return value
        loss, rank, limit = (found.get(k) for k in ("validation_loss", "validation_rank", "validation_rank_limit"))
        if isinstance(loss, float) and isinstance(rank, float) and isinstance(limit, float) and rank > 0.02 * limit:
            return -loss
        return None

    def _embed(self, method: Method, data: Dataset, device: torch.device) -> Tensor:
        return embed(method.encoder, data, prepare=self.modality.prepare, device=device)

    def _spearman(self, method: Method, scores: Tensor, device: torch.device) -> float:
        """Of the cosines of pairs with their scores; 0 where all are the same."""
        cosines = []
        for part in torch.arange(len(self.validation)).split(256):
            samples = self.validation.fetch(part).to(device)
            views = self.modality.pair_of_views(samples, self.validation, part, seed=0, step=0)
            cosines.append(pair_cosines(*method.embed_pair(views)).cpu())
        found = torch.cat(cosines)
        return 0.0 if min(len(found.unique()), len(scores.unique())) < 2 else spearman(found, scores)

    def _info_nce(self, method: Method, device: torch.device) -> float:
        total, count, ids = 0.0, 0, self.modality.ids(self.validation)
        for number, part in enumerate(torch.arange(len(self.validation)).split(256)):
            if len(part) < 2:
                continue
            samples = self.validation.fetch(part).to(device)
            views = self.modality.pair_of_views(samples, self.validation, part, seed=0, step=number)
            with dropout_enabled(method.encoder, number, device) if views[0] is views[1] else nullcontext():
                z1, z2 = method.embed_pair(views)
            total += float(nt_xent(z1, z2, temperature=_TEMPERATURE, ids=ids[part].to(device), reduction="sum"))
            count += 2 * len(part)
        return total / count if count else float("nan")
