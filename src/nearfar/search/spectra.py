"""The sound behind a row of embeddings, as a picture of its spectrogram."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.tables import READERS
from nearfar.modalities.image.views.grid import spectrum_pictures
from nearfar.modalities.sound.files import decode_sound, why
from nearfar.model.encoder import SoundModel
from nearfar.search.thumbnails import GRAY, inside

Picture = NDArray[np.uint8]


def spectra(
    encoder: SoundModel, names: Sequence[str], data: str | None, *, size: int, split: str | None = None
) -> tuple[list[Picture], list[str]]:
    """The spectrograms of the sounds with these names, and why some could not be had: those are an even gray.

    A name that leads out of the folder of the data is refused: a file of embeddings may come from anyone.

    Args:
        encoder: says the rate and the bands.
        names: K texts, as `Embeddings.names` gives them.
        data: a folder, a table or the name of built-in sounds; None where it is not known.
        size: side of each picture.
        split: as in `open_sounds`.
    """
    if data is None:
        raise ValueError("the sounds cannot be shown: the file does not say where they are; give --data")
    path = Path(data).expanduser()
    pictures, missing = [], []
    if path.exists():
        folder = path.parent if path.suffix.lower() in READERS else path
        folder = folder / split if split and (folder / split).is_dir() else folder
        for name in names:
            try:
                pictures.append(pictured(encoder, inside(folder, name), size))
            except Exception as error:  # soundfile raises of several kinds on broken files
                pictures.append(np.full((size, size, 3), GRAY, np.uint8))
                missing.append(f"{name}: {why(error)}")
        return pictures, missing
    sounds = encoder.open(data, split=split)
    row_of = {name: row for row, name in enumerate(sounds.names)}
    for name in names:
        if name in row_of:
            pictures.append(_drawn(encoder, sounds.fetch(torch.tensor([row_of[name]])), size))
        else:
            pictures.append(np.full((size, size, 3), GRAY, np.uint8))
            missing.append(f"{name}: not in {data}")
    return pictures, missing


def pictured(encoder: SoundModel, sound: Path, size: int) -> Picture:
    """(size, size, 3) of a file."""
    return _drawn(encoder, torch.from_numpy(decode_sound(sound.expanduser(), encoder.rate).values)[None], size)


def _drawn(encoder: SoundModel, waves: Tensor, size: int) -> Picture:
    return np.asarray(spectrum_pictures(encoder.modality.raw(waves)[:, 0], size)[0])
