"""Log-mel spectrograms: nearfar beside librosa, one core, the same numbers.

librosa is given the whole batch at once, as it likes best, and sound by sound, as a data set's workers call it. Rounds
are interleaved, so that a busy machine slows all alike.

    python benchmarks/audio.py [--rounds 9] [--out benchmarks/results/audio.md]
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import librosa
import numpy as np
import torch

from machine import describe
from nearfar.modalities.sound.logmel import LogMel

BATCH = 64
TURN = 0.25  # seconds
TARGET = 2.0
CASES = {
    "1 s at 16 kHz, window 1024, hop 160, 64 bands": (LogMel(), 1.0),
    "1 s at 8 kHz, window 512, hop 80, 64 bands": (LogMel(8000, 512, 80, 64, 60.0, 3900.0), 1.0),
    "3 s at 16 kHz, window 400, hop 160, 80 bands": (LogMel(16_000, 400, 160, 80, 0.0, 8000.0), 3.0),
}


def librosas(mel: LogMel, x: np.ndarray) -> np.ndarray:
    energy = librosa.feature.melspectrogram(
        y=x, sr=mel.sample_rate, n_fft=mel.window, hop_length=mel.hop, n_mels=mel.n_mels, fmin=mel.f_min, fmax=mel.f_max
    )
    return np.log(energy + mel.floor)


def measure(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time of a batch of each, in interleaved rounds after one to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            batches, start = 0, time.process_time()
            while (spent := time.process_time() - start) < TURN:
                run()
                batches += 1
            if turn:
                seconds[name].append(spent / batches)
    return seconds


def table(case: str, seconds: dict[str, list[float]], length: float, apart: float) -> list[str]:
    rows = []
    for name, values in seconds.items():
        each = statistics.median(values) / BATCH
        shown = ["", "", "", ""]
        if name != "nearfar":
            ratios = [theirs / ours for theirs, ours in zip(values, seconds["nearfar"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            met = "met" if middle >= TARGET else "missed"
            shown = [f"{middle:.1f}×", f"{low:.1f} to {high:.1f}", f"{TARGET:g}×: {met}", f"{apart:.0e}"]
        rows.append(f"| {case} | {name} | {each * 1e3:.2f} | {length / each:,.0f} | {' | '.join(shown)} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "audio.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "| case | library | ms a sound | sound a second, s | nearfar faster by | middle half | target | difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, (mel, length) in CASES.items():
        x = (0.1 * np.random.default_rng(0).standard_normal((BATCH, round(length * mel.sample_rate)))).astype(
            np.float32
        )
        waves = torch.from_numpy(x)
        apart = float(np.abs(librosas(mel, x) - mel(waves).numpy()).max())

        def whole(mel: LogMel = mel, x: np.ndarray = x) -> object:
            return librosas(mel, x)

        def each(mel: LogMel = mel, x: np.ndarray = x) -> object:
            return [librosas(mel, one) for one in x]

        def ours(mel: LogMel = mel, waves: torch.Tensor = waves) -> object:
            return mel(waves)

        runs = {"nearfar": ours, "librosa, the batch at once": whole, "librosa, one by one": each}
        lines += table(case, measure(runs, arguments.rounds), length, apart)
        print("\n".join(lines), file=sys.stderr)
    text = f"""# Log-mel spectrograms, one core

{describe()}, librosa {version("librosa")}, numpy {version("numpy")}.
Processor time on one core, medians over {arguments.rounds} interleaved rounds; batches of {BATCH}; ratios are taken
within a round. Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.

{chr(10).join(lines)}

Hann's window, centred frames, Slaney's bands, power, logarithm of the energy + 1e-6; float32 in, float32 out.

Run again: `python benchmarks/audio.py` with librosa installed.
"""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
