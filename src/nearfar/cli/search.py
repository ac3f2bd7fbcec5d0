"""`nearfar search`: the images, sounds or sentences most like one, or like a text, in a file of embeddings."""

import re
from itertools import count
from pathlib import Path

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar search",
        description="Find the images or sounds most like one, or the images that a text describes, and write a contact "
        "sheet of them; or list the sentences most like a text.",
    )
    parser.add_argument("run", help="what made the embeddings: a run, timm:NAME or torchvision:NAME")
    parser.add_argument("embeddings", help="a file that nearfar embed wrote")
    sought = parser.add_mutually_exclusive_group(required=True)
    sought.add_argument("--image", help="what to look for")
    sought.add_argument("--sound", help="what to look for; for a run that was trained on sounds")
    sought.add_argument("--text", help="what to look for, in words; for a run on captions or sentences")
    parser.add_argument("-k", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--index", choices=["exact", "ivf", "hnsw"], default="exact", help="ivf and hnsw need faiss")
    parser.add_argument("--effort", type=int, default=64, help="of ivf and hnsw: more finds more (default: 64)")
    parser.add_argument("--data", help="where the pictures are, if not where they were embedded")
    parser.add_argument(
        "-o", "--out", help="the contact sheet, a .png (default: a new one, named after the image or the text)"
    )
    options = parser.parse_args(arguments)
    if options.k < 1:
        raise ValueError(f"-k is {options.k}, expected at least 1")
    file_sought = options.image or options.sound
    stem = Path(file_sought).stem if options.text is None else "-".join(re.findall(r"\w+", options.text))[:60]
    out = Path(options.out) if options.out else free_name(f"{stem}-neighbours")
    if out.suffix.lower() != ".png":
        raise ValueError(f"the contact sheet is {str(out)!r}, expected a name that ends in .png")

    import numpy as np
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from nearfar.cli.encoder import encoder_of
    from nearfar.model.encoder import SeriesModel, SoundModel, TextModel
    from nearfar.search.contact_sheet import CELL, contact_sheet
    from nearfar.search.files import of_samples
    from nearfar.search.index import lookup
    from nearfar.search.query import embed_image, embed_sound, embed_text, picture_of
    from nearfar.search.search import search
    from nearfar.search.spectra import pictured, spectra
    from nearfar.search.thumbnails import thumbnails

    console = Console()
    encoder, file = encoder_of(options.run), of_samples(options.embeddings)
    picture = np.full((CELL, CELL, 3), 255, np.uint8)
    match encoder:
        case SeriesModel():
            raise ValueError(f"{options.run} was trained on series, expected an encoder of images, sounds or texts")
        case SoundModel() if options.sound is not None:
            query = embed_sound(encoder, file, Path(options.sound))
            picture = pictured(encoder, Path(options.sound), CELL)
        case SoundModel():
            raise ValueError(f"{options.run} is an encoder of sounds: give --sound")
        case TextModel() if options.text is not None and options.out is None:
            query = embed_text(encoder, file, options.text)
        case TextModel():
            raise ValueError(f"{options.run} is an encoder of texts: give --text, and no -o: sentences are listed")
        case _ if options.text is not None:
            query = embed_text(encoder, file, options.text)
        case _ if options.image is not None:
            query, picture = embed_image(encoder, file, Path(options.image)), picture_of(Path(options.image), CELL)
        case _:
            raise ValueError(f"{options.run} is an encoder of images: give --image")
    with console.status(f"searching {len(file):,} rows"):
        hits = search(query, file, k=options.k, find=lookup(file, options.index, effort=options.effort))
    found = [(s, row) for s, row in zip(hits.similarities[0].tolist(), hits.rows[0].tolist(), strict=True) if row >= 0]
    names, labels = file.names(), file.labels()
    table = Table()
    for name in ("similarity", "text" if isinstance(encoder, TextModel) else "path", *(["label"] if labels else [])):
        table.add_column(name)
    for similarity, row in found:
        table.add_row(f"{similarity:.4f}", escape(names[row]), *([escape(labels[row] or "")] if labels else []))
    console.print(table)
    if isinstance(encoder, TextModel):
        return 0
    where, split = options.data or file.about.get("data"), file.about.get("split")
    wanted = [names[row] for _, row in found]
    if isinstance(encoder, SoundModel):
        shown, missing = spectra(encoder, wanted, where, size=CELL, split=split)
    else:
        shown, missing = thumbnails(wanted, where, size=CELL, split=split)
    for line in missing[:3]:
        console.print(f"[yellow]{escape(line)}[/]")
    if len(missing) == len(found):
        raise ValueError("no contact sheet was written: none of the pictures can be shown; give --data")
    contact_sheet(
        picture, shown, [s for s, _ in found], [names[row] for _, row in found], out, words=options.text or "query"
    )
    console.print(f"contact sheet: {escape(str(out))}", soft_wrap=True)
    return 0


def free_name(stem: str) -> Path:
    """The first of stem.png, stem-2.png, ... that is not there yet."""
    names = (Path(f"{stem}{'' if i == 1 else f'-{i}'}.png") for i in count(1))
    return next(name for name in names if not name.exists())
