"""Settings of the views of each sample. Needs no torch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from nearfar.settings import check_settings, setting

MOST_VIEWS = 64  # more are a mistake: a batch is so many times as large

ColorChange = Literal["keep", "mild", "vary"]


@dataclass(frozen=True)
class ViewsConfig:
    """Augmented views of each sample."""

    main_key: ClassVar[str] = "preset"

    preset: str | None = setting(None, "name of the augmentations; None: those of the method")
    count: int | None = setting(
        None, "views of each sample, without local ones; None: those of the preset", least=1, most=MOST_VIEWS
    )
    local: int | None = setting(
        None, "views of small parts beside them; None: those of the preset", least=0, most=MOST_VIEWS
    )

    color: ColorChange | Literal["auto"] | None = setting(
        None,
        "of images: keep colors where they are the content, vary them mildly, or as SimCLR; auto: find out in a short "
        "trial; None: the preset's",
    )

    def __post_init__(self) -> None:
        check_settings(self, "views")
