"""Settings of runs on tables. Needs no torch."""

from dataclasses import dataclass
from typing import Any

from nearfar.settings import check_settings, setting


@dataclass(frozen=True)
class TableConfig:
    """How the columns of a table are scaled and varied. All but the corruption is measured on the training rows."""

    corruption: float = setting(0.6, "fraction of the columns that a view takes from other rows", least=0, most=1)
    columns: list[str] | None = setting(None, "names of the columns in order; None: those of the training data")
    categories: dict[str, Any] = setting({}, "numeric codes of the values of each text column")
    mean: list[float] | None = setting(None, "of each column of numbers, 0 of the others")
    std: list[float] | None = setting(None, "standard deviation of each column of numbers, 1 of the others", above=0)

    def __post_init__(self) -> None:
        check_settings(self, "table")
        for name in ("mean", "std"):
            if (value := getattr(self, name)) is not None and len(value) != len(self.columns or ()):
                raise ValueError(f"table.{name} has {len(value)} numbers, expected one for each of table.columns")
