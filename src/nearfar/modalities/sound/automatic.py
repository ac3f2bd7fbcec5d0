"""Front end, views, backbone, batch, optimizer and time of a run on sounds, from measured rules (docs/automatic.md).

Short sounds, such as words, are stretched to one length and seen whole; from longer ones each view cuts its own part.
"""

import math
from collections import Counter
from dataclasses import dataclass, fields
from statistics import median

import numpy as np

from nearfar.data.config import ReadConfig
from nearfar.data.sources import folder_splits
from nearfar.modalities.automatic import Automatic, Request, choose_precision, fitting_batch, keep_better_start
from nearfar.modalities.image.automatic import CPU_TIME, GPU_TIME
from nearfar.modalities.sound.data import find_sounds
from nearfar.modalities.sound.files import reader
from nearfar.nn.sequence import PRESETS as SEQUENCE

LOOKED_AT = 64  # files whose header is read
HIGHEST_RATE = 16_000  # Hz; what is above 8 kHz tells little and costs twice the time
FEW, EPOCHS, LEAST_STEPS = 8000, 25, 400  # up to so many sounds, so many passes over them, and steps
SHORT = 4.0  # seconds; sounds that are seldom longer are stretched
TRIM_DB, RANGE_DB = 20.0, 45.0  # of short sounds; chosen on speakers that were held out of the training part
OPTIONS = {  # of methods that have them
    "temperature": 0.5,  # takes of the same word are negatives, too: a low temperature would tell these apart first
    "momentum": 0.97,  # a run of a thousand steps is short for 0.99
}


@dataclass(frozen=True)
class SoundFacts:
    """What is known of sounds before any of them is decoded."""

    count: int
    seconds: float  # median length
    longest: float  # seconds; a tenth of the sounds is longer
    rate: int  # Hz, of most of them


def look_at(request: Request) -> SoundFacts | None:
    """Count sounds and read the headers of a few; None if they cannot be found, which opening them will explain."""
    try:
        known = {field.name for field in fields(ReadConfig)}
        read = ReadConfig(**{name: value for name, value in request.given.get("data", {}).items() if name in known})
        parts = folder_splits(request.data)
        source = find_sounds(request.data, read, split=parts[0] if parts else read.training_rows)
        assert source.paths is not None
        info, found = reader().info, []
        for row in np.linspace(0, len(source) - 1, min(LOOKED_AT, len(source))).astype(int):
            try:
                header = info(str(source.paths[row]))
            except Exception:  # a broken file is told when it is decoded
                continue
            found.append((header.frames / header.samplerate, int(header.samplerate)))
        lengths, rates = zip(*found, strict=True)
        rate = Counter(rates).most_common(1)[0][0]
        return SoundFacts(len(source), float(median(lengths)), float(np.quantile(lengths, 0.9)), rate)
    except Exception:  # the run will open the data again, and say what is wrong with them
        return None


def choose(request: Request, facts: SoundFacts) -> Automatic:
    """The settings of a run on these sounds."""
    chosen, device = Automatic(), request.device
    if not request.starts_from_weights:
        keep_better_start(chosen)
    seen = f"{facts.count:,} sounds of about {facts.seconds:.2g} s"
    rate = min(facts.rate, HIGHEST_RATE)
    why = "the recordings' own" if rate == facts.rate else f"{facts.rate:,} Hz would cost more and tell little more"
    chosen.choose("sound.sample_rate", rate, why)
    chosen.choose("sound.normalize", "sound", "neither microphone nor loudness is heard")
    backbone = str(request.given.get("backbone") or request.method.settings.get("sound", {}).get("backbone", ""))
    if backbone in SEQUENCE:
        _choose_for_waves(request, chosen, facts, rate)
    else:
        _choose_for_spectrograms(request, chosen, facts, seen)
    if not request.has_length:
        if facts.count <= FEW:
            least = math.ceil(LEAST_STEPS * chosen.settings.get("batch_size", 64) / facts.count)
            chosen.choose("epochs", max(EPOCHS, least), f"more passes over {seen} did not help; --time or --epochs")
        else:
            time = CPU_TIME if device.type == "cpu" else GPU_TIME
            chosen.choose("time", time, "a usual length; --time, --steps or --epochs change it")
    return chosen


def _choose_for_spectrograms(request: Request, chosen: Automatic, facts: SoundFacts, seen: str) -> None:
    chosen.choose("sound.window_seconds", 0.025, "usual for speech: formants are seen, not the pitch")
    chosen.choose("sound.n_mels", 40)
    if request.starts_from_weights:
        return
    choose_precision(chosen, request.device)
    if facts.longest <= SHORT:
        chosen.choose("backbone", "audio-quick", f"{seen}: each is stretched to one length and seen whole")
        chosen.choose("views.preset", "whole", "most of each sound, in noise, with stripes masked")
        chosen.choose("sound.crop_seconds", 0.64)
        chosen.choose("sound.trim_db", TRIM_DB, "quiet ends are cut off, so that words begin and end alike")
        if request.given.get("sound", {}).get("normalize", "sound") == "sound":
            chosen.choose("sound.range_db", RANGE_DB, "how quiet a room was is not heard")
    else:
        chosen.choose("backbone", "audio-tiny", f"{seen}: each view cuts its own part")
        chosen.choose("views.preset", "speech", "parts of each sound, in noise, with stripes masked")
        chosen.choose("sound.crop_seconds", 1.0)
    if "lr" not in request.given.get("optimizer", {}):  # a rate is of the optimizer that its user knows
        chosen.choose("optimizer.name", "muon", "learns more per step than AdamW in short runs")
    options = dict(request.method.short_run_of("sound").get("options", {}))
    options |= {name: value for name, value in OPTIONS.items() if name in options}
    chosen.settings["options"] = options
    chosen.choose("batch_size", fitting_batch(64, facts.count), "small batches make more steps in the same time")


def _choose_for_waves(request: Request, chosen: Automatic, facts: SoundFacts, rate: int) -> None:
    chosen.choose("sound.crop_seconds", 0.64 if facts.seconds < 0.64 else 1.28)
    chosen.lay(request.method.short_run_of("sound"))
    if rate <= 8000 and request.method.settings.get("sound", {}).get("backbone") == "cpc-16k-small":
        chosen.choose("backbone", "cpc-8k-small", f"a frame every 10 ms at {rate:,} Hz")
