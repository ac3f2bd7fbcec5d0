"""Linear probe by SGD: a linear layer on the frozen encoder, trained on augmented samples."""

from dataclasses import dataclass

from nearfar.evaluation.classification import STYLES, classified
from nearfar.evaluation.finetune import FinetuneHyperparameters, train_on_labels
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Task
from nearfar.settings import setting


@dataclass(frozen=True)
class SgdSettings:
    """Protocol sgd: a linear layer on the frozen encoder, trained on augmented samples."""

    epochs: int = setting(20, "at most", least=1)
    lr: float = setting(0.1, "learning rate at batch 256, scaled linearly with the batch", above=0)
    batch_size: int = setting(256, "samples per step", least=1)
    patience: int = setting(5, "epochs without a better validation accuracy after which it stops", least=1)


def sgd(task: Task, settings: SgdSettings, seed: int) -> Outcome:
    """Stopped early on a validation split of the training rows."""
    recipe = FinetuneHyperparameters(
        frozen=True,
        optimizer="sgd",
        lr=settings.lr * settings.batch_size / 256,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        patience=settings.patience,
        validation=task.validation_fraction,
    )
    return classified(task, train_on_labels(task, recipe, labels=1.0, seed=seed, words="SGD probe").scores, seed)


PROTOCOL = Protocol(
    "sgd",
    sgd,
    "linear probe by SGD, on augmented samples",
    "accuracy",
    SgdSettings,
    shared=("validation_fraction", "bootstrap"),
    seeded=True,
    shows_progress=True,
    title="A linear probe by SGD",
    metrics=STYLES,
)
