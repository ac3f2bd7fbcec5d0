"""CPC on sound: predict what comes from what was heard, in the raw wave, without a label.

python examples/cpc_sound.py                          # built-in melodies, for which a minute is enough to see it learn
python examples/cpc_sound.py --data recordings/ --rate 16000 --backbone cpc-16k-small
"""

import argparse
import json
from pathlib import Path

import torch

import nearfar


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", default="melodies:600", help="a folder of .wav, .flac, .ogg or .mp3, or built-in data"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/cpc-sound"), help="the run folder")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rate", type=int, default=8000, help="values a second, to which every file is brought")
    parser.add_argument("--backbone", default="cpc-8k-small", help="cpc-8k or cpc-16k, each also -small")
    options = parser.parse_args(arguments)

    nearfar.train(
        {"path": options.data, "labels": not options.data.startswith("melodies")},  # melodies take longer to learn
        out=options.out,
        method="cpc",
        modality="sound",
        backbone=options.backbone,
        epochs=options.epochs,
        batch_size=8,  # many steps count for more than many negatives
        options={"horizons": 8, "negatives": "sequence"},
        sound={"sample_rate": options.rate, "crop_seconds": 0.64, "normalize": "sound"},
        optimizer={"name": "adamw", "lr": 3.2e-2},
        health_every=60,
    )

    # How far ahead does it see? Each horizon has a bound on the mutual information, and a ceiling that no bound passes.
    # The first look is that of the untrained network; the frame is one of some sixty of the same sound.
    lines = [json.loads(line) for line in (options.out / "metrics.jsonl").read_text().splitlines()]
    looks = [look for look in lines if "horizons" in look]
    first, last = looks[0], looks[-1]
    for i, ahead in enumerate(last["horizons"]):
        print(
            f"{ahead:.0f} frames ahead: untrained {first['horizon_accuracy'][i]:.0%} right, "
            f"trained {last['horizon_accuracy'][i]:.0%}, "
            f"at least {last['horizon_bound'][i]:.2f} of at most {last['horizon_ceiling'][i]:.2f} nats known"
        )

    # What is kept is an encoder of sounds: a vector for each, or one for every frame.
    encoder = nearfar.load(options.out)
    rate = encoder.modality.config.sound.sample_rate
    wave = torch.sin(2 * torch.pi * 440 * torch.arange(rate) / rate)  # a second of A
    print(f"a second of sound as {tuple(encoder.encode([wave]).shape)} numbers")


if __name__ == "__main__":
    main()
