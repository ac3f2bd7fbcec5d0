"""CLIP on captioned pictures: two towers in one space, and then search by words and classes by their names.

python examples/clip_captions.py                     # built-in letters and what is said of them
python examples/clip_captions.py --data pairs.csv --ask "a red car" --ask "a dog"

In a minute it learns colours. Letters as well are known after the four minutes of `nearfar train --config glyphs-clip`.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F

import nearfar
from nearfar.evaluation.results import Results


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="glyphs:3000", help="a table of path and caption, or built-in data")
    parser.add_argument("--out", type=Path, default=Path("runs/clip-captions"), help="the run folder")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--ask", action="append", help="a text to look for, as often as you like")
    options = parser.parse_args(arguments)

    # Captions that say the same, and several captions of one picture, are never negatives of each other.
    nearfar.train(
        options.data, out=options.out, method="clip", backbone="strokes", epochs=options.epochs, batch_size=64
    )
    model = nearfar.load(options.out)  # reads texts, too

    pictures = model.modality.open(options.data)
    assert pictures.captions is not None
    images = model.encode(pictures.fetch(torch.arange(min(len(pictures), 5000))))
    for text in options.ask or ["a red letter K on white", "a teal letter A on orange"]:
        similarity = F.cosine_similarity(model.encode([text], kind="text"), images)  # (N,)
        print(f"\n{text}")
        for value, row in zip(*(found.tolist() for found in similarity.topk(3)), strict=True):
            print(f"  {value:.3f}  {pictures.names[row]}  {pictures.captions[row][0]}")

    # Pictures that it was not trained on: is a picture's caption among the five nearest of all?
    results = Results.load(options.out / "evaluation.json")
    recall = {who: results.value(who, "captions", "recall@5, image to text") for who in ("untrained", "trained")}
    told = ", ".join(f"{who} {value:.1%}" for who, value in recall.items() if value is not None)
    print(f"\nthe caption of a new picture is among the first five: {told}")
    if options.data.startswith("glyphs"):
        print("colours are learned in a minute, letters in some: nearfar train --config glyphs-clip")
    print(f"more, with intervals: nearfar evaluate {options.out} --protocol captions zero_shot")


if __name__ == "__main__":
    main()
