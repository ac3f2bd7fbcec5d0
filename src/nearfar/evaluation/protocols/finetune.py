"""Fine-tuning on fractions of the labels; on weights as they were drawn this is supervised training from scratch."""

from dataclasses import dataclass

from torch import nn

from nearfar.evaluation.classification import STYLES, classified
from nearfar.evaluation.finetune import FinetuneHyperparameters, train_on_labels
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Task
from nearfar.settings import setting

LEAST_HELD = 50  # rows that choose the epoch: of fewer, the choice is chance


@dataclass(frozen=True)
class FinetuneSettings:
    """Protocol finetune: encoder and linear layer, trained on a fraction of the labels.

    An epoch has at least ten steps: it passes over few labels several times.
    """

    label_fractions: list[float] = setting(
        [0.01, 0.1, 1.0], "fractions of each class to train on, one after the other", above=0, most=1
    )
    per_class: list[int] = setting([], "numbers of labels of each class, in place of fractions", least=1)
    frozen: bool = setting(False, "train the linear layer only")
    epochs: int = setting(30, "epochs at most, each of at least ten steps", least=1)
    lr: float = setting(1e-3, "learning rate of the last layer", above=0)
    layer_decay: float = setting(0.75, "learning rate of each layer as a fraction of the next one's", above=0, most=1)
    batch_size: int = setting(128, "samples per step", least=1)
    patience: int = setting(5, "epochs without a better validation accuracy after which it stops", least=1)


def finetune(task: Task, settings: FinetuneSettings, seed: int) -> Outcome:
    """Encoder and linear layer, trained on each amount of labels."""
    recipe = FinetuneHyperparameters(
        frozen=settings.frozen,
        optimizer="adamw",
        lr=settings.lr,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        patience=settings.patience,
        # Training from scratch has no pretrained layers to protect: slowing them would weaken the baseline.
        layer_decay=1.0 if task.embedder.from_scratch else settings.layer_decay,
        weight_decay=0.05,
        validation=max(0.2, task.validation_fraction),  # of few labels, a tenth would choose nothing
        least_held=LEAST_HELD,
        from_probe=not task.embedder.from_scratch and isinstance(task.encoder, nn.Module),
    )
    metrics, curves, samples = {}, {}, {}
    amounts: list[tuple[float | int, str]] = [(count, f"{count} a class") for count in sorted(settings.per_class)]
    for part, words in amounts or [(part, f"{100 * part:g} % labels") for part in sorted(settings.label_fractions)]:
        trained = train_on_labels(task, recipe, labels=part, seed=seed, words=f"fine-tuning on {words}")
        outcome = classified(task, trained.scores, seed)
        metrics[f"accuracy, {words}"] = outcome.metrics["accuracy"]
        metrics[f"balanced accuracy, {words}"] = outcome.metrics["balanced accuracy"]
        samples[f"accuracy, {words}"] = outcome.samples["accuracy"]
        curves = outcome.curves  # of the largest amount
    return Outcome(metrics, curves, samples=samples)


PROTOCOL = Protocol(
    "finetune",
    finetune,
    "fine-tuning on fractions of the labels",
    "accuracy, .* (labels|a class)",
    FinetuneSettings,
    shared=("validation_fraction", "bootstrap"),
    seeded=True,
    shows_progress=True,
    title="Fine-tuning",
    metrics=STYLES,
)
