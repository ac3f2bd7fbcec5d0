"""SimCLR on a folder of pictures: train, read the verdict, look at neighbors.

python examples/simclr_folder.py                      # on letters drawn into a folder
python examples/simclr_folder.py --data photos/ --epochs 100 --backbone resnet18 --image-size 96
"""

import argparse
from pathlib import Path

from PIL import Image

import nearfar
from nearfar.modalities.image.data.glyphs import glyphs
from nearfar.search.contact_sheet import contact_sheet
from nearfar.search.files import Embeddings
from nearfar.search.search import search
from nearfar.search.thumbnails import thumbnails


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of pictures (default: letters are drawn into one)")
    parser.add_argument("--letters", type=int, default=1500, help="to draw, without --data (default: 1500)")
    parser.add_argument("--out", type=Path, default=Path("runs/simclr-folder"), help="the run folder")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--backbone", default="strokes", help="made for letters; tiny, resnet18, ... for photographs")
    parser.add_argument("--image-size", type=int, default=32)
    options = parser.parse_args(arguments)
    folder = options.data or drawn(options.out.with_name("letters"), options.letters)

    # Train. All settings of `nearfar train` are there; labels (sub-folders) are for the readout alone.
    nearfar.train(
        {"path": folder, "labels": any(path.is_dir() for path in folder.iterdir())},
        out=options.out,
        method="simclr",
        views=None if options.data else "shapes",
        backbone=options.backbone,
        image_size=options.image_size,
        epochs=options.epochs,
        batch_size=64,
        options={"temperature": 0.2, "layers": 1, "dim": 256},
        optimizer={"name": "adamw", "lr": 8e-3},
    )

    # The run ends with its verdict: better, same or WORSE than its start and the best baseline.

    # Neighbors: every picture as a vector, then the ten most similar to the first.
    nearfar.embed(options.out, folder, options.out / "pictures.parquet", progress=False)
    file = Embeddings(options.out / "pictures.parquet")
    names, (_, rows) = file.names(), next(file.pieces())
    hits = search(rows[:1], file, k=11)
    found = [names[row] for row in hits.rows[0].tolist()]
    print(f"most similar to {found[0]}: {', '.join(found[1:6])}")
    shown, _ = thumbnails(nearfar.load(options.out).modality, found, file.location(), size=128)
    sheet = contact_sheet(shown[0], shown[1:], hits.similarities[0, 1:].tolist(), found[1:], options.out / "near.png")
    print(f"contact sheet: {sheet}\nreport: {options.out / 'report.html'}")


def drawn(folder: Path, count: int) -> Path:
    """Letters as files, in a folder for each."""
    letters = glyphs(count)
    assert letters.labels is not None and letters.classes is not None
    for i, label in enumerate(letters.labels.tolist()):
        path = folder / letters.classes[label] / f"{i:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(letters.images[i]).save(path)
    return folder


if __name__ == "__main__":
    main()
