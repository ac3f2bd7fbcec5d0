"""CLIP on captioned pictures: two towers in one space, and then search by words and classes by their names.

python examples/clip_captions.py                     # built-in letters and what is said of them
python examples/clip_captions.py --data pairs.csv --ask "a red car" --ask "a dog"
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F

import nearfar
from nearfar.data import open_data


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="glyphs:1500", help="a table of path and caption, or built-in data")
    parser.add_argument("--out", type=Path, default=Path("runs/clip-captions"), help="the run folder")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--ask", action="append", help="a text to look for, as often as you like")
    options = parser.parse_args(arguments)

    # Captions that say the same, and several captions of one picture, are never negatives of each other.
    nearfar.train(options.data, out=options.out, method="clip", backbone="micro", epochs=options.epochs, batch_size=64)
    model = nearfar.load(options.out, "image-text")  # reads texts, too

    pictures = open_data(options.data, image_size=model.preparation.size, captions=True)
    assert pictures.captions is not None
    images = model.embed(pictures.fetch(torch.arange(min(len(pictures), 1000))))
    for text in options.ask or ["a red letter K on white", "a teal letter A on orange"]:
        similarity = F.cosine_similarity(model.embed_texts([text]), images)  # (N,)
        print(f"\n{text}")
        for value, row in zip(*(found.tolist() for found in similarity.topk(3)), strict=True):
            print(f"  {value:.3f}  {pictures.names[row]}  {pictures.captions[row][0]}")
    print(f"\nrecall and zero-shot, with their intervals: nearfar evaluate {options.out} --protocol captions zero_shot")


if __name__ == "__main__":
    main()
