"""Training on labels: a linear layer on the frozen encoder, or both together, with early stopping."""

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.data.loader import Loader
from nearfar.evaluation.classification import probabilities
from nearfar.evaluation.embedding import Encoder
from nearfar.evaluation.linear import standard
from nearfar.evaluation.logistic import fit_logistic
from nearfar.evaluation.metrics import accuracy
from nearfar.evaluation.task import Part, Task
from nearfar.modalities.splits import stratified_split
from nearfar.nn.layers import layers
from nearfar.nn.norm import fix_statistics
from nearfar.nn.seeding import seeded_generator
from nearfar.progress import progress_bar

_WARMUP = 0.05  # part of the training in which the rate rises
_LEAST_STEPS = 10  # of an epoch: few labels are gone through several times
_HEAD_STRENGTH = 0.1  # inverse L2 strength of the probe that a head begins as


@dataclass(frozen=True)
class FinetuneHyperparameters:
    """How to train on labels.

    Attributes:
        frozen: the encoder stays as it is, in evaluation mode.
        optimizer: "sgd" with momentum 0.9, or "adamw".
        lr: of the last layer; with layer_decay, the layer below has lr · layer_decay, and so on down.
        weight_decay: of matrices and kernels.
        epochs, batch_size: at most, and as ever; an epoch is a pass over the rows, or as many as ten steps take.
        patience: epochs without a better validation accuracy, after which it stops.
        validation: share of the labelled rows that chooses the epoch.
        least_held: rows that this share must have; of fewer, all are trained on, and the last epoch stays.
        augment: random crops and flips, or the images as they are.
        from_probe: the encoder has learned before. The linear layer begins as a probe of its features, so that the
            first steps do not spoil them, and BatchNorm keeps its statistics, which few rows would tell badly.

    Reference: Kumar et al. 2022 (LP-FT), https://arxiv.org/abs/2202.10054
    """

    frozen: bool
    optimizer: Literal["sgd", "adamw"]
    lr: float
    epochs: int
    batch_size: int
    patience: int
    layer_decay: float = 1.0
    weight_decay: float = 0.0
    validation: float = 0.1
    least_held: int = 1
    augment: bool = True
    from_probe: bool = False


class Classifier(nn.Module):
    """An encoder with a linear layer on its standardised features: their scale must not decide the rate."""

    def __init__(self, encoder: Encoder, features: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder  # a module among the modules, or any function
        self.norm = nn.BatchNorm1d(features, affine=False)
        self.head = nn.Linear(features, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.encoder(x)))
        return logits


@dataclass(frozen=True)
class Trained:
    """A classifier at its best epoch."""

    scores: Tensor  # (N, C) probabilities of the test rows
    labelled: int  # rows it was trained and chosen on
    epochs: int  # that were run
    validation: float | None  # best accuracy there; None where there was nothing to choose by


def train_on_labels(
    task: Task, recipe: FinetuneHyperparameters, *, labels: float | int, seed: int, words: str = "training"
) -> Trained:
    """Train a copy of the encoder on a part of the training labels; test rows are predicted once, at the end.

    Args:
        task: what is trained, and on what.
        recipe: how.
        labels: part of each class whose labels are used, at least one of each; a whole number is so many of each.
        seed: of the draw of labels, their split, the order and the views.
        words: beside the progress bar.
    """
    chosen = draw_labels(task.train.labels, labels, seed=seed)  # (K,) places in the training part
    fit, held = (
        chosen[rows] for rows in stratified_split(task.train.labels[chosen], share=recipe.validation, seed=seed)
    )
    if len(held) < recipe.least_held:
        fit, held = chosen, held[:0]
    if len(fit) < 2:
        raise ValueError(f"{len(fit)} labelled rows are left to train on, expected at least two; use more labels")
    model = _classifier(task)
    if recipe.from_probe:
        begin_as_probe(model, task, fit)
    fitting = _Fitting(task, recipe, model, fit, seed)
    best, kept, waited, epoch = -1.0, {}, 0, 0
    with progress_bar(task.progress(words), recipe.epochs) as advance:
        for epoch in range(1, recipe.epochs + 1):
            fitting.epoch(epoch)
            advance(1)
            if len(held) == 0:
                continue
            found = accuracy(predict(model, task, task.train, held), task.train.labels[held]).value
            if found >= best:  # ties are common on few rows: the later epoch wins
                best, kept, waited = found, copy.deepcopy(model.state_dict()), 0
            else:
                waited += 1
            if waited == recipe.patience:
                break
    if len(held):
        model.load_state_dict(kept)
    scores = predict(model, task, task.test, torch.arange(len(task.test)))
    return Trained(scores, len(chosen), epoch, best if len(held) else None)


def draw_labels(labels: Tensor, part: float | int, *, seed: int) -> Tensor:
    """(K,) row numbers: a part of each class, at least one row; or, of a whole number, so many rows of each.

    >>> draw_labels(torch.tensor([0] * 10 + [1] * 3), 5, seed=0).shape
    torch.Size([8])
    >>> draw_labels(torch.tensor([0] * 10 + [1]), 0.2, seed=0).shape
    torch.Size([3])
    """
    if not 0 < part <= 1 and not (isinstance(part, int) and part > 1):
        raise ValueError(f"part is {part:g}, expected above 0 and up to 1, or a whole number of rows")
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    chosen = []
    for label in labels.unique():
        rows = shuffled[labels[shuffled] == label]
        chosen.append(rows[: part if isinstance(part, int) else max(1, round(part * len(rows)))])
    return torch.cat(chosen).sort().values


def parameter_groups(model: Classifier, recipe: FinetuneHyperparameters) -> list[dict[str, Any]]:
    """Parameters with their rates: the head's is the recipe's, each layer below has `layer_decay` of the one above.

    Norms and biases do not decay.

    Reference: Bao et al. 2022 (BEiT), appendix, https://arxiv.org/abs/2106.08254
    """
    stages = [] if recipe.frozen or not isinstance(model.encoder, nn.Module) else layers(model.encoder)
    groups = []
    for height, parameters in enumerate([list(model.head.parameters()), *reversed(stages)]):
        lr = recipe.lr * recipe.layer_decay**height
        matrices, vectors = ([p for p in parameters if (p.ndim > 1) == wanted] for wanted in (True, False))
        groups.append({"params": matrices, "lr": lr, "weight_decay": recipe.weight_decay})
        groups.append({"params": vectors, "lr": lr, "weight_decay": 0.0})
    return groups


def rate(progress: float) -> float:
    """The part of the rate at this part of the training: up linearly, then down as a cosine.

    >>> [round(rate(p), 2) for p in (0.0, 0.05, 0.525, 1.0)]
    [0.1, 1.0, 0.5, 0.0]
    """
    if progress < _WARMUP:
        return 0.1 + 0.9 * progress / _WARMUP
    return (1 + math.cos(math.pi * min(1.0, (progress - _WARMUP) / (1 - _WARMUP)))) / 2


@torch.no_grad()
def predict(model: Classifier, task: Task, part: Part, places: Tensor) -> Tensor:
    """(K, C) probabilities of these places of a part, in evaluation mode."""
    model.eval()
    device = model.head.weight.device
    return torch.cat(
        [
            probabilities(model(task.embedder.prepare(part.fetch(some).to(device)))).cpu()
            for some in places.split(task.compute.batch_size)
        ]
    )


def _classifier(task: Task) -> Classifier:
    encoder = copy.deepcopy(task.encoder) if isinstance(task.encoder, nn.Module) else task.encoder
    return Classifier(encoder, task.train_features.shape[1], task.classes).to(task.device)


def begin_as_probe(model: Classifier, task: Task, fit: Tensor) -> None:
    """The linear layer becomes a probe of the features as they are, of the (K,) rows; all statistics are fixed.

    The features are standardised by all training rows, whose labels are not needed for that.
    """
    mean, deviation = standard(task.raw_train_features)
    norm, head = model.norm, model.head
    assert norm.running_mean is not None and norm.running_var is not None
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(deviation.square())
    norm.eps = 0.0  # a constant feature has deviation 1
    fix_statistics(model)
    with torch.no_grad():
        x = (task.raw_train_features[fit] - mean) / deviation
        weight, bias = fit_logistic(x, task.train.labels[fit], classes=task.classes, c=_HEAD_STRENGTH, tolerance=1e-2)
        head.weight.copy_(weight)
        head.bias.copy_(bias)


class _Fitting:
    """A classifier being trained on some rows of the training part."""

    def __init__(self, task: Task, recipe: FinetuneHyperparameters, model: Classifier, fit: Tensor, seed: int) -> None:
        self.task, self.recipe, self.model, self.fit, self.seed = task, recipe, model, fit, seed
        size = min(recipe.batch_size, len(fit))
        self.loader = Loader(len(fit), size, seed, drop_last=len(fit) % size == 1)  # one row has no batch statistics
        groups = parameter_groups(model, recipe)
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(groups, momentum=0.9) if recipe.optimizer == "sgd" else torch.optim.AdamW(groups)
        )
        self.passes = math.ceil(_LEAST_STEPS / len(self.loader))
        total = recipe.epochs * self.passes * len(self.loader)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: rate(step / total))

    def epoch(self, number: int) -> None:
        self.model.train()
        if self.recipe.frozen and isinstance(self.model.encoder, nn.Module):
            self.model.encoder.eval()  # it keeps its statistics, too
        for each in range(number * self.passes, (number + 1) * self.passes):
            for step, indices in self.loader.batches(each):
                self._step(self.fit[indices], each * len(self.loader) + step)

    @torch.enable_grad()
    def _step(self, places: Tensor, number: int) -> None:
        images = self.task.train.fetch(places).to(self.model.head.weight.device)
        if self.recipe.augment:
            images = self.task.varied(images, seeded_generator(self.seed, number, 0))
        x = self.task.embedder.prepare(images)
        with torch.set_grad_enabled(not self.recipe.frozen):
            h = self.model.encoder(x)
        logits = self.model.head(self.model.norm(h))
        loss = F.cross_entropy(logits, self.task.train.labels[places].to(logits.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
