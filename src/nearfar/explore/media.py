"""Pictures and sounds as bytes that a browser shows and plays."""

import io
import wave

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def as_png(picture: NDArray[np.uint8]) -> bytes:
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
