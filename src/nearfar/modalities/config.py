"""Settings of the views of each sample. Needs no torch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from nearfar.settings import check_settings, setting

ColorChange = Literal["keep", "mild", "vary"]


@dataclass(frozen=True)
class ViewsConfig:
    """Augmented views of each sample."""

    main_key: ClassVar[str] = "preset"

    preset: str | None = setting(None, "name of the augmentations; None: those of the method")
    count: int | None = setting(None, "views of each sample, without local ones; None: those of the preset", least=1)
    local: int | None = setting(None, "views of small parts beside them; None: those of the preset", least=0)

    color: ColorChange | Literal["auto"] | None = setting(
        None,
        "of images: keep colors where they are the content, vary them mildly, or as SimCLR; auto: find out in a short "
        "trial; None: the preset's",
    )

    def __post_init__(self) -> None:
        check_settings(self, "views")
