"""Settings of the views of each sample. Needs no torch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from nearfar.settings import check_settings, setting

VIEW_FACTORS = ("color", "orientation", "scale")  # settings of what is content in some samples and chance in others
MOST_VIEWS = 64  # more are a mistake: a batch is so many times as large


@dataclass(frozen=True)
class ViewsConfig:
    """Augmented views of each sample."""

    main_key: ClassVar[str] = "preset"

    preset: str | None = setting(None, "name of the augmentations; None: those of the method")
    count: int | None = setting(
        None, "views of each sample, without local ones; None: those of the preset", least=1, most=MOST_VIEWS
    )
    local: int | None = setting(
        None, "additional views of small parts of the sample; None: those of the preset", least=0, most=MOST_VIEWS
    )

    color: Literal["keep", "mild", "vary", "auto"] | None = setting(
        None,
        "of images: keep colors where they are the content, vary them mildly, or as SimCLR; auto: find out in a short "
        "trial; None: the preset's",
    )
    orientation: Literal["keep", "flip", "rotate", "auto"] | None = setting(
        None,
        "of images: keep them as they stand, as letters; flip left and right; rotate by quarter turns and flip, as "
        "cells or satellite pictures; auto: find out in a short trial; None: the preset's",
    )
    scale: Literal["keep", "vary", "auto"] | None = setting(
        None,
        "of images: keep at least half of the area in each crop, or vary it from a fifth on; auto: find out in a short "
        "trial; None: the preset's",
    )
    size: int | None = setting(
        None,
        "of images: side of the views in pixels; None: the image size. Smaller views make more steps, and the encoder "
        "that they trained sees larger images afterwards",
        least=8,
    )

    def __post_init__(self) -> None:
        check_settings(self, "views")
