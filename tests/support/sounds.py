"""Small sound files for tests."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = 8000


def tone(hertz: float, seconds: float = 0.3, rate: int = RATE, loud: float = 0.5) -> NDArray[np.float32]:
    return (loud * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def recordings(folder: Path, *, words: int = 3, speakers: int = 3, takes: int = 4) -> Path:
    """Files such as 1_ann_0.wav: a word is a pitch, a speaker makes it longer."""
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for word in range(words):
        for number, speaker in enumerate(("ann", "bob", "cem", "dee")[:speakers]):
            for take in range(takes):
                x = tone(300 * (word + 1), 0.3 + 0.05 * number)
                x = x + 0.05 * rng.standard_normal(len(x)).astype(np.float32)
                soundfile.write(folder / f"{word}_{speaker}_{take}.wav", x, RATE)
    return folder
