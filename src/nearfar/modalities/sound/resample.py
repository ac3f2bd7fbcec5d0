"""Sounds from one rate to another."""

from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
HALF = 10  # zero crossings of the filter to either side
BETA = 5.0  # of the Kaiser window: what would be folded back is some 60 dB down
CHUNK = 1 << 16  # values of the result at a time


def resample(x: Floats, rate: int, new_rate: int) -> Floats:
    """(T,) at `rate` to (ceil(T · new_rate / rate),) at `new_rate`, by a polyphase filter: a sinc in a Kaiser window.

    The filter is that of `scipy.signal.resample_poly`, whose result this is, up to the rounding of float32.

    >>> resample(np.ones(441, np.float32), 44_100, 16_000).shape
    (160,)
    """
    if rate < 1 or new_rate < 1:
        raise ValueError(f"the rates are {rate} and {new_rate}, expected at least 1")
    if rate == new_rate or not len(x):
        return x
    up, down = new_rate // gcd(rate, new_rate), rate // gcd(rate, new_rate)
    bank = _bank(up, down)  # (up, taps)
    taps, reach = bank.shape[1], HALF * max(up, down)
    count = -(-len(x) * up // down)
    padded = np.concatenate([np.zeros(taps, np.float32), x, np.zeros(taps + reach // up + 1, np.float32)])
    result = np.empty(count, np.float32)
    back = np.arange(taps)
    for start in range(0, count, CHUNK):
        place = np.arange(start, min(start + CHUNK, count)) * down + reach  # in steps of 1 / up of a sample
        newest, phase = place // up, place % up
        windows = padded[(newest + taps)[:, None] - back]  # (n, taps), newest first
        result[start : start + len(place)] = np.einsum("nt,nt->n", windows, bank[phase])
    return result


@lru_cache(maxsize=16)
def _bank(up: int, down: int) -> Floats:
    """(up, taps): for each place between two samples, the weights of the samples from the newest back."""
    widest = max(up, down)
    n = np.arange(-HALF * widest, HALF * widest + 1)
    taps = np.sinc(n / widest) * np.kaiser(len(n), BETA)
    taps *= up / taps.sum()
    rows = -(-len(taps) // up)
    return np.asarray(np.pad(taps, (0, rows * up - len(taps))).reshape(rows, up).T, np.float32, order="C")
