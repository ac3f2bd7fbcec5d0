"""What is behind a row of embeddings: a picture to look at, and a sound to hear. Nothing outside the data's folder."""

import io
import threading
import wave
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from nearfar.data.dataset import Dataset
from nearfar.data.sources import Source
from nearfar.data.tables import READERS, path_and_rows
from nearfar.modalities.image.data.decode import decode
from nearfar.modalities.image.data.opening import find_source
from nearfar.modalities.image.views.grid import spectrum_pictures
from nearfar.modalities.sound.data import OVER
from nearfar.modalities.sound.files import decode_sound
from nearfar.model.encoder import Loaded, SeriesModel, SoundModel, TextModel
from nearfar.search.thumbnails import inside

Picture = NDArray[np.uint8]
GRAY = 200  # of a sample that cannot be shown
INK = "#1f66b0"


class Samples:
    """The samples of a data set by their names, which may come from a file of anyone's.

    Args:
        encoder: whose samples they are.
        data: a folder, a table, or the name of built-in data; None where it is not known.
        split: as in `open_data`.
    """

    def __init__(self, encoder: Loaded, data: str | None, split: str | None = None) -> None:
        self.encoder, self.data, self.split = encoder, data, split
        file = None if data is None else Path(path_and_rows(data)[0]).expanduser()
        self.path = file if file is not None and file.exists() else None
        self._lock = threading.Lock()
        self._opened: tuple[Source | Dataset, dict[str, int]] | None = None

    @property
    def root(self) -> Path | None:
        """The folder that nothing leaves: of a table its own, of COCO's captions the one above their own."""
        if self.path is None or self.path.is_dir():
            return self.path
        return (
            self.path.absolute().parent.parent if self.path.suffix.lower() == ".json" else self.path.absolute().parent
        )

    def picture(self, name: str, size: int) -> Picture:
        """(size, size, 3).

        Raises:
            OSError, ValueError and what Pillow or soundfile raise: why there is none.
        """
        if isinstance(self.encoder, SoundModel):
            waves = torch.from_numpy(self.wave(name))[None]
            return np.asarray(spectrum_pictures(self.encoder.modality.raw(waves)[:, 0], size)[0])
        if isinstance(self.encoder, TextModel):
            raise ValueError("a text is read, not looked at")
        if isinstance(self.encoder, SeriesModel):
            return drawn(self._fetched(name)[0].numpy(), size)
        if self.path is not None and self.path.is_dir() and self.split is None:
            return decode(below(self.path, name), size)
        source, row = self._found(name)
        assert isinstance(source, Source)
        if source.paths is not None:
            assert self.root is not None
            return decode(checked(self.root, source.paths[row]), size)
        with self._lock:  # what holds the pictures may not be made for threads
            return source.read(row, size)

    def wave(self, name: str) -> NDArray[np.int16]:
        """(T,) at the encoder's rate."""
        encoder = self.encoder
        assert isinstance(encoder, SoundModel)
        if self.path is None:
            x = self._fetched(name)[0].numpy()
            return np.asarray(x[x != OVER], np.int16)
        folder = self.path.parent if self.path.suffix.lower() in READERS else self.path
        folder = folder / self.split if self.split and (folder / self.split).is_dir() else folder
        most = round(encoder.modality.config.sound.longest * encoder.rate)
        return np.asarray(decode_sound(below(folder, name), encoder.rate).values[:most], np.int16)

    def _fetched(self, name: str) -> torch.Tensor:
        source, row = self._found(name)
        assert not isinstance(source, Source)
        return source.fetch(torch.tensor([row]))

    def _found(self, name: str) -> tuple[Source | Dataset, int]:
        if self.data is None:
            raise ValueError("the file of embeddings does not say where the samples are; give --data")
        with self._lock:
            if self._opened is None:
                source: Source | Dataset
                if isinstance(self.encoder, SoundModel | SeriesModel):
                    source = self.encoder.open(self.data, split=self.split)
                else:
                    source = find_source(self.data, split=self.split)
                self._opened = source, {each: row for row, each in enumerate(source.names)}
        source, row_of = self._opened
        if name not in row_of:
            raise ValueError(f"there is no {name!r} in {self.data}")
        return source, row_of[name]


def below(folder: Path, name: str) -> Path:
    """The file of that name in the folder; a name, or a link, that leads out of it is an error."""
    return checked(folder, inside(folder, name))


def checked(folder: Path, path: Path) -> Path:
    """The file without links, if it is in the folder."""
    real = path.resolve(strict=True)
    if not real.is_relative_to(folder.resolve(strict=True)):
        raise ValueError("the path leads out of the folder of the data, expected one below it")
    if not real.is_file():
        raise ValueError("it is not a file")
    return real


def drawn(series: NDArray[np.float32], size: int) -> Picture:
    """(C, T) as lines from left to right, each from its least to its greatest value."""
    picture = Image.new("RGB", (size, size), "white")
    draw = ImageDraw.Draw(picture)
    for channel in series[:3]:
        x = channel[np.isfinite(channel)]
        if len(x) < 2:
            continue
        low, high = float(x.min()), float(x.max())
        y = (size - 5) * (1 - (x - low) / max(high - low, 1e-9)) + 2
        draw.line(list(zip(np.linspace(2, size - 3, len(x)).tolist(), y.tolist(), strict=True)), fill=INK, width=2)
    return np.asarray(picture)


def as_png(picture: Picture) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG", compress_level=1)
    return file.getvalue()


def as_wav(values: NDArray[np.int16], rate: int) -> bytes:
    """16 bits, one channel."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(np.asarray(values, "<i2").tobytes())
    return file.getvalue()
