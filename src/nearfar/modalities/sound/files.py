"""Any sound file as numbers at one rate and in one channel, or a line that says why not."""

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from nearfar.modalities.sound.resample import resample
from nearfar.modalities.sound.store import Wave

SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"})
VERSION = 1  # part of every cache key; raise it when the same file comes out with other values
LOUDEST = 32_767  # the lowest number of int16 is not used: it says that a sound is over
SILENCE = 1e-4  # a sound that never gets louder, 80 dB below the loudest, is silent
FULL, RUN = 0.9999, 4  # so many values in a row at the top or the bottom are cut off
LONGEST = 3600 * 48_000  # values of a file, in all its channels: more is a mistake, or an attack
CHANNELS = 64
RATES = (100, 384_000)  # values a second; from another rate a filter of any size, or any number of values, would follow


def decode_sound(file: Path | BinaryIO, sample_rate: int, *, seconds: float | None = None) -> Wave:
    """The file as (T,) int16: the mean of its channels, at `sample_rate`.

    Args:
        file: a path, or the bytes of a file that can be read from its start.
        sample_rate: values a second of the result.
        seconds: a longer sound is refused before it is decoded; None: whatever `LONGEST` allows.

    Raises:
        ModuleNotFoundError: where soundfile is not installed.
        OSError, ValueError and what soundfile raises: `why` turns it into a line.
    """
    soundfile = reader()
    _check_whole(file)
    with soundfile.SoundFile(str(file) if isinstance(file, Path) else file) as sound:
        stated = sound.frames
        if sound.channels > CHANNELS or stated * sound.channels > LONGEST:
            raise ValueError(f"{stated:,} values in {sound.channels} channels are more than the limit")
        found = int(sound.samplerate)
        if not RATES[0] <= found <= RATES[1] or stated * sample_rate > LONGEST * found:
            raise ValueError(f"{stated:,} values at {found:,} a second are not a sound, or more than the limit")
        if seconds is not None and stated > seconds * found:
            raise ValueError(f"it is {stated / found:,.0f} seconds long, more than the limit of {seconds:g}")
        x = sound.read(dtype="float32", always_2d=True)  # (T, channels)
    if not len(x):
        raise ValueError("it has no values: its length is 0")
    if 0 < stated < 1 << 62 and len(x) < stated:
        raise ValueError(f"it is cut off: {len(x):,} of {stated:,} values are there")
    if not np.isfinite(x).all():
        raise ValueError("it has values that are not finite")
    clipped = bool(is_clipped(x))
    mono = x[:, 0] if x.shape[1] == 1 else x.mean(1)
    if float(np.abs(mono).max()) < SILENCE:
        raise ValueError("it is silent")
    mono = resample(mono, found, sample_rate)
    return Wave(np.clip(np.round(mono * LOUDEST), -LOUDEST, LOUDEST).astype(np.int16), clipped)


def is_clipped(x: NDArray[np.float32]) -> np.bool_:
    """Whether (T, channels) stays at the top or the bottom for several values in a row.

    >>> is_clipped(np.array([[0.0], [1.0], [1.0], [1.0], [1.0]], np.float32)), is_clipped(np.ones((3, 1), np.float32))
    (np.True_, np.False_)
    """
    full = np.abs(x) >= FULL
    together = full[: len(full) - RUN + 1].copy()
    for step in range(1, RUN):
        together &= full[step : len(full) - RUN + 1 + step]
    return np.any(together)


def _check_whole(file: Path | BinaryIO) -> None:
    """A RIFF file says how long it is; libsndfile reads what is there of a shorter one and says nothing."""
    if isinstance(file, Path):
        if file.stat().st_size == 0:  # of a pipe, too, which would be waited for without end
            raise ValueError("the file is empty")
        with file.open("rb") as opened:
            return _check_whole(opened)
    there = file.seek(0, 2)
    file.seek(0)
    head = file.read(8)
    file.seek(0)
    if there == 0:
        raise ValueError("the file is empty")
    if head[:4] == b"RIFF" and len(head) == 8:
        stated = int.from_bytes(head[4:], "little")
        # Writers that do not know the length beforehand leave 0 or the greatest number.
        if stated not in (0, 0xFFFFFFFF) and stated + 8 > there + 1:
            raise ValueError(f"it is cut off: {there:,} of {stated + 8:,} bytes are there")
    return None


def reader() -> Any:
    """The package soundfile, or a line that says how to get it."""
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the package without its library
        raise ModuleNotFoundError(
            "reading sounds needs the package soundfile, which is not installed: pip install 'nearfar[audio]'"
        ) from None
    return soundfile


def why(error: Exception) -> str:
    """The reason a sound could not be read, in a line."""
    if isinstance(error, FileNotFoundError):
        return "file not found"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if type(error).__module__.startswith("soundfile"):
        said = str(getattr(error, "error_string", "")) or str(error).rpartition(": ")[2]
        return f"not a sound, or of an unknown kind ({' '.join(said.split()).rstrip('.')})"
    text = " ".join(str(error).split())
    return text if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {text}"
