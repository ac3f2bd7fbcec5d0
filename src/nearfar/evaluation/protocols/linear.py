"""Linear probe: logistic regression on frozen features."""

from nearfar.evaluation.classification import STYLES, classified, probabilities
from nearfar.evaluation.linear import linear_probe
from nearfar.evaluation.protocols.protocol import NoSettings, Protocol
from nearfar.evaluation.task import Outcome, Task

MIN_PER_CLASS = 3  # training samples, on average


def linear(task: Task, settings: NoSettings, seed: int) -> Outcome:
    """Full-batch logistic regression; its regularization is chosen on a fraction of the training rows."""
    if len(task.train) < MIN_PER_CLASS * task.classes:
        raise ValueError(
            f"{len(task.train):,} training samples of {task.classes:,} classes are too few to fit and choose a "
            f"classifier on, expected at least {MIN_PER_CLASS} of each"
        )
    probe = linear_probe(
        task.raw_train_features,  # standardized by the probe itself
        task.train.labels,
        classes=task.classes,
        validation=task.validation_fraction,
        seed=seed,
    )
    return classified(task, probabilities(probe(task.raw_test_features)), seed)


PROTOCOL = Protocol(
    "linear",
    linear,
    "linear probe, full batch",
    "accuracy",
    shared=("validation_fraction", "bootstrap"),
    seeded=True,
    title="A linear probe",
    metrics=STYLES,
    verdict="first",
)
