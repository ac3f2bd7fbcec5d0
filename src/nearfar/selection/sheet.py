"""The contact sheet of a selection."""

from pathlib import Path

from nearfar.config import TrainConfig
from nearfar.messages import one_line
from nearfar.modalities import modality_class
from nearfar.modalities.base import Modality
from nearfar.model.encoder import Encoder
from nearfar.search.contact_sheet import CELL, picture_sheet
from nearfar.search.thumbnails import thumbnails
from nearfar.selection.select import Selection

PICTURES = 98  # at most


def write_sheet(found: Selection, modality: Modality, out: Path, *, data: str | None = None) -> list[str]:
    """Write the pictures of the first 98 selected samples; returns why some cannot be shown.

    Args:
        found: what was selected.
        modality: reads and draws the samples.
        out: a .png.
        data: where the samples are, if not where the embeddings say.
    """
    names = found.names[:PICTURES]
    pictures, missing = thumbnails(modality, names, found.location.by(data), size=CELL)
    if len(missing) == len(names):
        raise ValueError(f"no contact sheet: none of the samples can be shown ({missing[0]}); give --samples")
    captions = [(f"{rank}. {name}", why) for rank, (name, why) in enumerate(zip(names, found.reasons, strict=False), 1)]
    picture_sheet(pictures, captions, out)
    return missing


def sheet_of(found: Selection, encoder: Encoder | None, out: str | Path, *, data: str | None = None) -> str:
    """Write the contact sheet where the samples have pictures; a line that says where it is, or why there is none.

    Args:
        found: what was selected.
        encoder: of the embeddings; None: the samples are taken for images.
        out, data: as in `write_sheet`.
    """
    path = Path(out).expanduser()
    if path.suffix.lower() != ".png":
        raise ValueError(f"the contact sheet is {str(out)!r}, expected a name that ends in .png")
    modality = encoder.modality if encoder is not None else modality_class("image")(TrainConfig())
    if not modality.has_pictures:
        return f"no contact sheet: {modality.noun} have no pictures"
    try:
        missing = write_sheet(found, modality, path, data=data)
    except (ValueError, OSError) as error:
        return f"no contact sheet: {one_line(error).removeprefix('no contact sheet: ')}"
    return "\n".join([*missing[:3], f"contact sheet: {path}"])
