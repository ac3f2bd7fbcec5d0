"""CPC on sound: predict what comes from what was heard, in the raw wave, without a label.

python examples/cpc_sound.py                          # built-in melodies
python examples/cpc_sound.py --data recordings/ --rate 16000 --backbone cpc-16k-small
"""

import argparse
import json
from pathlib import Path

import torch

import nearfar
from nearfar.evaluate import Results


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", default="melodies:400", help="a folder of .wav, .flac, .ogg or .mp3, or built-in data"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/cpc-sound"), help="the run folder")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=int, default=8000, help="values a second, to which every file is brought")
    parser.add_argument("--backbone", default="cpc-8k-small", help="cpc-8k or cpc-16k, each also -small")
    options = parser.parse_args(arguments)

    nearfar.train(
        options.data,
        out=options.out,
        method="cpc",
        modality="sound",
        backbone=options.backbone,
        epochs=options.epochs,
        batch_size=16,
        options={"horizons": 8, "negatives": "sequence"},
        sound={"rate": options.rate, "seconds": 0.64, "normalize": "sound"},
        optimizer={"name": "adamw", "lr": 8e-3},
        health_every=20,
    )

    # How far ahead does it see? Each horizon has a bound on the mutual information, and a ceiling that no bound passes.
    looks = [json.loads(line) for line in (options.out / "metrics.jsonl").read_text().splitlines()]
    last = next(look for look in reversed(looks) if "horizons" in look)
    told = zip(last["horizons"], last["horizon_accuracy"], last["horizon_bound"], last["horizon_ceiling"], strict=True)
    for ahead, accuracy, bound, ceiling in told:
        print(
            f"{ahead:.0f} frames ahead: {accuracy:.0%} right, at least {bound:.2f} of at most {ceiling:.2f} nats known"
        )
    results = Results.load(options.out / "evaluation.json")
    for who in ("trained", "untrained", "raw"):
        if (value := results.value(who, "linear")) is not None:
            print(f"linear readout, {who}: {value:.0%}")

    # What is kept is an encoder of sounds: a vector for each, or one for every frame.
    encoder = nearfar.load(options.out, "sound")
    wave = torch.sin(2 * torch.pi * 440 * torch.arange(encoder.rate) / encoder.rate)  # a second of A
    print(f"a second of sound as {tuple(encoder.embed(wave[None]).shape)} numbers")


if __name__ == "__main__":
    main()
