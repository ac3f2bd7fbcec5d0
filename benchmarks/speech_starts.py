"""Words of speakers never heard from 1, 5 and 10 labels of each: starts that pip installs, beside MFCC and a run.

    .venv/bin/python benchmarks/speech_starts.py --data fsdd/recordings [--runs RUN ...] [--test george,theo]

`--data` is a folder of recordings named LABEL_SPEAKER_TAKE. Takes below 15 of all other speakers may be labelled, takes
below 25 of those of `--test` are to be named. Weights come in the packages resemblyzer (Apache-2.0, a speaker encoder)
and silero-vad (MIT, a detector of speech), whose files are read without importing either (`pip install --no-deps`).
Each network stays frozen; its frames are averaged in four parts of a recording, in order. A recording gets the class
whose labelled recordings have the most similar mean, by cosine; features are standardized over the training recordings
without their labels, those of a run are as it embeds them.
"""

import argparse
import importlib.util
import math
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import nearfar
from nearfar.losses.arguments import l2_normalize
from nearfar.modalities.sound.files import reader
from nearfar.modalities.sound.logmel import LogMel, mel_filters
from nearfar.modalities.sound.mfcc import MfccSequence

RATE = 16_000
FRONT_END = LogMel(sample_rate=RATE, window=400, hop=160, n_mels=40)
LABELED, TESTED = 15, 25  # takes of a word by a speaker
PARTS = 4


def recording(path: Path) -> Tensor:
    """(T,) one channel at 16 kHz."""
    values, rate = reader().read(str(path), dtype="float32", always_2d=True)
    x = values.mean(1)
    places = np.arange(0, len(x) * RATE / rate) * rate / RATE
    return torch.from_numpy(np.interp(places, np.arange(len(x)), x).astype(np.float32))


def in_parts(frames: Tensor) -> Tensor:
    """(L, F) to (4 F,): the mean of each quarter."""
    return F.adaptive_avg_pool1d(frames.T[None], PARTS).flatten()


def file_of(package: str, name: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"{package} is not installed: pip install --no-deps {package.replace('_', '-')}")
    return Path(found.origin).parent / name


class Resemblyzer:
    """Three LSTM over 40 mels of energy: the frames of each layer, and the embedding of a speaker.

    Reference: Wan et al. 2018, https://arxiv.org/abs/1710.10467
    """

    def __init__(self) -> None:
        path = file_of("resemblyzer", "pretrained.pt")
        self.state = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
        self.layers = [nn.LSTM(40 if number == 0 else 256, 256, batch_first=True) for number in range(3)]
        for number, layer in enumerate(self.layers):
            layer.load_state_dict({name: self.state[f"lstm.{name[:-1]}{number}"] for name in layer.state_dict()})
        self.filters, self.window = mel_filters(FRONT_END).float(), torch.hann_window(FRONT_END.window)

    def __call__(self, x: Tensor) -> dict[str, Tensor]:
        x = x * 10 ** ((-30 - 20 * math.log10(float(x.square().mean().sqrt()) + 1e-9)) / 20)  # to -30 dB, as theirs
        spectrum = torch.stft(x, 400, 160, window=self.window, pad_mode="constant", return_complex=True).abs().square()
        h, found = (self.filters @ spectrum).T[None], {}
        for number, layer in enumerate(self.layers, 1):
            h, (last, _) = layer(h)
            found[f"Resemblyzer, layer {number}"] = in_parts(h[0])
        found["Resemblyzer, embedding"] = l2_normalize(
            F.relu(F.linear(last[0], self.state["linear.weight"], self.state["linear.bias"]))
        )[0]
        return found


class SileroVad:
    """Four convolutions over magnitudes and an LSTM cell."""

    def __init__(self) -> None:
        self.state = load_file(file_of("silero_vad", "data/silero_vad_16k.safetensors"))
        self.cell = nn.LSTMCell(128, 128)
        self.cell.load_state_dict({name: self.state[f"lstm_cell.{name}"] for name in self.cell.state_dict()})

    def __call__(self, x: Tensor) -> dict[str, Tensor]:
        x = F.pad(F.pad(x, (64, -len(x) % 128 + 576))[None, None], (0, 64), mode="reflect")
        real, imaginary = F.conv1d(x, self.state["stft_conv.weight"], stride=128).chunk(2, 1)
        h = (real.square() + imaginary.square()).sqrt()
        for number, stride in enumerate((1, 2, 2, 1), 1):
            weight, bias = (self.state[f"conv{number}.{name}"] for name in ("weight", "bias"))
            h = F.relu(F.conv1d(h, weight, bias, stride=stride, padding=1))
        rows, state = [], None
        for frame in h[0].T:
            state = self.cell(frame[None], state)
            rows.append(state[0][0])
        return {"silero-vad, convolutions": in_parts(h[0].T), "silero-vad, LSTM": in_parts(torch.stack(rows))}


def mfcc(x: Tensor) -> dict[str, Tensor]:
    return {"MFCC sequences": MfccSequence()(FRONT_END(x[None])[:, None])[0]}


def accuracy(z: Tensor, labels: Tensor, test: Tensor, count: int, seed: int) -> float:
    """In percent, of rows that `test` marks, by so many labelled rows of each class."""
    generator, centers = torch.Generator().manual_seed(seed), []
    for label in range(int(labels.max()) + 1):
        rows = (~test & (labels == label)).nonzero()[:, 0]
        centers.append(z[rows[torch.randperm(len(rows), generator=generator)[:count]]].mean(0))
    return 100 * float(((z[test] @ l2_normalize(torch.stack(centers)).T).argmax(1) == labels[test]).float().mean())


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", nargs="*", default=[])
    parser.add_argument("--test", default="george,theo", help="speakers to be named")
    parser.add_argument("--without", nargs="*", default=[], help="speakers that are left out")
    parser.add_argument("--draws", type=int, default=3, help="of the labels")
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths, words, held = [], [], []
    for path in sorted(options.data.iterdir()):
        word, speaker, take = path.stem.split("_")
        tested = speaker in options.test.split(",")
        if speaker not in options.without and int(take) < (TESTED if tested else LABELED):
            paths.append(path)
            words.append(word)
            held.append(tested)
    names, test = sorted(set(words)), torch.tensor(held)
    labels = torch.tensor([names.index(word) for word in words])
    print(f"{int((~test).sum())} recordings to label, {int(test.sum())} to name, {options.draws} draws")
    starts = (mfcc, Resemblyzer(), SileroVad())
    rows = [{name: h for start in starts for name, h in start(recording(path)).items()} for path in paths]
    features = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    for name, h in features.items():
        features[name] = (h - h[~test].mean(0)) / (h[~test].std(0) + 1e-5)
    for run in options.runs:
        features[run] = nearfar.load(run).encode([str(path) for path in paths])
    for name, h in features.items():
        found = {n: [accuracy(l2_normalize(h), labels, test, n, s) for s in range(options.draws)] for n in (1, 5, 10)}
        print(f"| {name} | {' | '.join(f'{mean(x):.1f} ± {stdev(x):.1f}' for x in found.values())} |", flush=True)


if __name__ == "__main__":
    main()
