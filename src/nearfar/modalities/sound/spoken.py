"""Built-in spoken words, synthesised by eSpeak NG, an optional package of its own.

eSpeak NG is GPL-3; it comes with the wheel `espeakng-loader` and is no part of this package, which only calls it, in a
process of its own. That process also makes the sounds a function of the seed: eSpeak's state carries over from one call
to the next, so all words are spoken in one order, from a fresh start.
"""

import ctypes
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.child_process import run_module
from nearfar.data.cache import cached_array
from nearfar.modalities.sound.data import SoundDataset
from nearfar.modalities.sound.resample import resample

Split = Literal["train", "test"]
VERSION = 1  # part of the cache's key; raise it when the same seed gives other sounds
WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"),
)
# Voices of eSpeak that sound the same in every process; f2, f3 and f5 do not.
TRAIN_VOICES = ("m1", "m2", "m3", "m4", "m5", "f1", "Andrea", "steph")
TEST_VOICES = ("m6", "m7", "m8", "f4", "linda")
SPEED, PITCH = (120, 220), (25, 75)  # words a minute; of eSpeak's 0 to 100
SNR = (15.0, 40.0)  # dB
_PAUSE = 0.003  # of the loudest: what is softer at both ends is cut off
_SYNCHRONOUS, _RATE, _PITCH, _UTF8, _CHARACTERS = 2, 1, 3, 1, 1  # of speak_lib.h


class Said(NamedTuple):
    """One word, as it will be spoken."""

    word: int
    voice: str
    speed: int
    pitch: int


def spoken(
    n: int = 2000, *, sample_rate: int, seed: int = 0, split: Split = "train", longest: int | None = None, cache: Path
) -> SoundDataset:
    """n words of 20, by eight voices at many speeds and pitches, in a little noise; the test split has five others.

    Args:
        sample_rate: values a second.
        longest: as in `SoundDataset`.
        cache: folder to keep the sounds in.
    """
    if n < 1:
        raise ValueError(f"n is {n}, expected at least 1 word")
    if importlib.util.find_spec("espeakng_loader") is None:
        raise ModuleNotFoundError(
            "spoken words need the package espeakng-loader (eSpeak NG, GPL-3), which is not installed: "
            "pip install 'nearfar[spoken]'"
        )
    plans = planned(n, seed, split)

    def speak() -> NDArray[np.int16]:
        with tempfile.TemporaryDirectory() as folder:
            order, out = Path(folder) / "order.json", Path(folder) / "waves.npy"
            order.write_text(json.dumps(plans))
            done = run_module("nearfar.modalities.sound.spoken", str(order), str(out))
            if done.returncode != 0:
                said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                raise RuntimeError(f"eSpeak NG could not speak the words: {said}")
            values = np.load(out, allow_pickle=False)
        return _finished(values, n, sample_rate, seed, split)

    stored = cached_array(cache / "spoken" / f"{split}-{n}-{sample_rate}-{seed}-{VERSION}", speak)
    lengths = np.diff(np.flatnonzero(stored == _MARK), append=len(stored)) - 1  # each sound follows a mark
    return SoundDataset(
        stored,
        np.flatnonzero(stored == _MARK) + 1,
        lengths,
        sample_rate=sample_rate,
        longest=longest,
        labels=torch.tensor([plan.word for plan in plans]),
        classes=WORDS,
    )


_MARK = -32_768  # no value of a sound


def planned(n: int, seed: int, split: Split) -> list[Said]:
    """Chance as choices; sample i depends on (seed, split, i) alone.

    >>> planned(2, 0, "train") == planned(5, 0, "train")[:2]
    True
    """
    if split not in ("train", "test") or seed < 0:
        raise ValueError(f"split is {split!r} and seed {seed}, expected 'train' or 'test' and at least 0")
    voices = TRAIN_VOICES if split == "train" else TEST_VOICES
    plans = []
    for i in range(n):
        u = np.random.default_rng((seed, split == "test", i)).random(4)
        speed, pitch = (int(low + (high - low) * v) for (low, high), v in zip((SPEED, PITCH), u[2:], strict=True))
        plans.append(Said(int(u[0] * len(WORDS)), voices[int(u[1] * len(voices))], speed, pitch))
    return plans


def _finished(values: NDArray[np.int16], n: int, sample_rate: int, seed: int, split: Split) -> NDArray[np.int16]:
    """What eSpeak gave, at the rate, in noise, each sound after a mark."""
    found, given = int(values[0]) * 10 + int(values[1]), np.split(values[2:], np.flatnonzero(values[2:] == _MARK))[1:]
    pieces = []
    for i, wave in enumerate(given):
        rng = np.random.default_rng((seed, split == "test", i, 1))
        given_rate = np.asarray(wave[1:] / 32_767, np.float32)
        loud = np.flatnonzero(np.abs(given_rate) > _PAUSE * np.abs(given_rate).max())
        x = resample(given_rate[loud[0] : loud[-1] + 1], found, sample_rate)
        noise = rng.standard_normal(len(x)) * np.sqrt(np.square(x).mean() / 10 ** (rng.uniform(*SNR) / 10))
        noisy = np.clip(0.5 * (x + noise) / np.abs(x).max(), -1, 1)
        pieces += [np.array([_MARK], np.int16), np.round(noisy * 32_767).astype(np.int16)]
    if len(given) != n:
        raise RuntimeError(f"eSpeak NG spoke {len(given)} of {n} words")
    return np.concatenate(pieces)


def main(order: str, out: str) -> None:
    """In a fresh process: speak all words in order; the rate first, then each sound after a mark."""
    import espeakng_loader

    library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
    sample_rate = library.espeak_Initialize(_SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
    if sample_rate <= 0:
        raise RuntimeError("it does not start")
    heard: list[NDArray[np.int16]] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

    def collect(wave: Any, count: int, events: Any) -> int:
        if wave and count > 0:
            heard.append(np.ctypeslib.as_array(wave, (count,)).astype(np.int16))
        return 0

    callback = kind(collect)  # a name of its own: it must live as long as it may be called
    library.espeak_SetSynthCallback(callback)
    pieces = [np.array(divmod(sample_rate, 10), np.int16)]
    for word, voice, speed, pitch in json.loads(Path(order).read_text()):
        heard.clear()
        if library.espeak_SetVoiceByName(f"en+{voice}".encode()) != 0:
            raise RuntimeError(f"it has no voice {voice!r}")
        library.espeak_SetParameter(_RATE, speed, 0)
        library.espeak_SetParameter(_PITCH, pitch, 0)
        text = WORDS[word].encode()
        library.espeak_Synth(text, ctypes.c_size_t(len(text) + 1), 0, _CHARACTERS, 0, _UTF8, None, None)
        library.espeak_Synchronize()
        wave = np.maximum(np.concatenate(heard), -32_767)
        pieces += [np.array([_MARK], np.int16), wave]
    np.save(out, np.concatenate(pieces))


if __name__ == "__main__":
    main(*sys.argv[1:])
