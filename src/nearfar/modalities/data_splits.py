"""Training, validation and test part of the data of a run."""

from dataclasses import dataclass, field

from nearfar.data.dataset import Dataset


@dataclass(frozen=True)
class Splits:
    """The parts of the data, decided in one place for training and for evaluation (`modalities/splits.py`)."""

    train: Dataset
    validation: Dataset | None  # held out of the training part
    test: Dataset | None
    test_name: str = "test"  # what results call the test part
    notes: list[str] = field(default_factory=list)
    everything: Dataset | None = None  # training and validation part together, which `fit` learns from

    @property
    def parts(self) -> dict[str, Dataset | None]:
        """The parts by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def gallery(self) -> Dataset:
        """The samples whose labels an evaluation may use: the training part, with the validation part if neither is
        measured on. A validation part is held out of training to watch it, and is as good as any other neighbor.
        """
        return self.train if self.test is None or self.everything is None else self.everything

    @property
    def evaluated(self) -> tuple[Dataset, str] | None:
        """What numbers are measured on, and its name: the test part, else the validation part, else nothing."""
        if self.test is not None:
            return self.test, self.test_name
        return None if self.validation is None else (self.validation, "validation")
