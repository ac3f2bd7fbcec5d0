"""Settings of the views of each sample. Needs no torch."""

from dataclasses import dataclass
from typing import ClassVar

from nearfar.settings import check_settings, setting


@dataclass(frozen=True)
class ViewsConfig:
    """Augmented views of each sample."""

    main_key: ClassVar[str] = "preset"

    preset: str | None = setting(None, "name of the augmentations; None: those of the method")
    count: int | None = setting(None, "global views of each sample; None: what the method takes", least=1)
    local: int = setting(0, "small local crops of each sample", least=0)

    def __post_init__(self) -> None:
        check_settings(self, "views")
