"""A small search application: a folder goes in, questions are answered in the terminal or on a page.

    python examples/search_app.py                                  # letters: trains a little, then asks
    python examples/search_app.py --data photos/ --run runs/mine   # your pictures, an encoder of yours
    python examples/search_app.py --page                           # the page of `nearfar explore` instead

A question is the path of a picture or, where the encoder was trained with captions, some words.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import nearfar
from nearfar.cli import main as nearfar_command
from nearfar.evaluation.results import Results
from nearfar.modalities.image.data.opening import open_images
from nearfar.model.encoder import Encoder
from nearfar.search.files import Embeddings
from nearfar.search.query import encode_query
from nearfar.search.search import search

QUESTIONS = ["a red letter K on white", "a teal letter A on orange"]  # in a minute it learns colours, not yet letters


class SearchApp:
    """An index of pictures, and an encoder that puts questions beside them.

    Args:
        encoder: of images; one trained with captions reads questions, too.
        data: a folder, a table, or built-in data.
        index: the .parquet to write. A second start finds it there, and asks at once.
    """

    def __init__(self, encoder: Encoder, data: str, index: Path) -> None:
        self.encoder = encoder
        nearfar.embed(encoder, data, index, progress=False)
        self.file = Embeddings(index)
        self.names, self.said = self.file.names(), said_of(data, self.file)

    def ask(self, question: str, k: int = 5) -> list[tuple[float, str, str]]:
        """The k pictures nearest to a picture or to words: cosine, name, and what is said of them."""
        path = Path(question).expanduser()
        if path.is_file():
            query = encode_query(self.encoder, self.file, path, "image")
        else:
            query = encode_query(self.encoder, self.file, question, "text")
        hits = search(query, self.file, k=k)
        return [
            (cosine, self.names[row], self.said[row])
            for cosine, row in zip(hits.similarities[0].tolist(), hits.rows[0].tolist(), strict=True)
        ]


def said_of(data: str, file: Embeddings) -> list[str]:
    """Of every picture its caption, or its label, or nothing: by it an answer can be judged."""
    try:
        captions = open_images(data, image_size=32, captions=True).captions
    except ValueError:  # pictures without captions
        captions = None
    if captions is not None and len(captions) == len(file):
        return [each[0] for each in captions]
    return [label or "" for label in file.labels() or [None] * len(file)]


def quality(run: Path) -> str:
    """How well the encoder finds captions of pictures that it was not trained on, beside the same network untrained."""
    file = run / "evaluation.json"
    results = Results.load(file) if file.exists() else None
    recall = {
        who: results and results.value(who, "captions", "recall@5, text to image") for who in ("untrained", "trained")
    }
    return ", ".join(f"{who} {value:.1%}" for who, value in recall.items() if value is not None)


def answer(app: SearchApp, questions: Iterable[str]) -> None:
    for question in questions:
        try:
            found = app.ask(question.strip())
        except ValueError as error:  # no picture, no text tower: told in a line, and the next question is asked
            print(error)
            continue
        print(f"{question.strip()}:")
        for cosine, name, said in found:
            print(f"  {cosine:.3f}  {name}  {said}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="glyphs:3000", help="what to search: a folder, a table, or built-in data")
    parser.add_argument("--run", type=Path, help="a run of nearfar (default: CLIP is trained for a moment)")
    parser.add_argument("--epochs", type=int, default=8, help="of that training (default: 8)")
    parser.add_argument("--ask", action="append", help="a question; without one they are read from the terminal")
    parser.add_argument("--page", action="store_true", help="serve the page of `nearfar explore`")
    options = parser.parse_args(arguments)
    run = options.run or Path("runs/search-app")
    if options.run is None and not run.exists():
        nearfar.train(options.data, out=run, method="clip", backbone="strokes", epochs=options.epochs, batch_size=64)
    if options.page:
        return nearfar_command(["explore", str(run)])
    app = SearchApp(nearfar.load(run), options.data, run / "search.parquet")
    print(f"{len(app.file):,} pictures are in the index")
    if found := quality(run):
        print(f"the picture of a new caption is among the first five: {found}")
    if options.ask or not sys.stdin.isatty():
        answer(app, options.ask or QUESTIONS)
        return 0
    print("a path or some words; an empty line ends")
    while line := input("? ").strip():
        answer(app, [line])
    return 0


if __name__ == "__main__":
    sys.exit(main())
