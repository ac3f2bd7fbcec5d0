"""`nearfar search`: the samples most similar to an image, a sound or a text, in a file of embeddings."""

import re
from pathlib import Path

from nearfar.cli.parser import Parser
from nearfar.data.names import check_files_there, check_run_there
from nearfar.weights.names import EXPECTED


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar search",
        description="Find the samples most similar to an image, a sound, a text or a sample of the file itself, and "
        "write a contact sheet of them; sentences are listed.",
    )
    parser.add_argument("run", help=f"the encoder of the embeddings: {EXPECTED}")
    parser.add_argument("embeddings", help="a file that nearfar embed wrote")
    query = parser.add_mutually_exclusive_group(required=True)
    query.add_argument("--image", help="an image file as the query")
    query.add_argument("--sound", help="a sound file as the query, for a run on sounds")
    query.add_argument("--text", help="a text as the query, for a run on captions or sentences")
    query.add_argument("--like", metavar="NAME", help="a sample of the file as the query, by its name there")
    parser.add_argument("-k", type=int, default=20, help="number of results (default: 20)")
    parser.add_argument("--index", choices=["exact", "ivf", "hnsw"], default="exact", help="ivf and hnsw need faiss")
    parser.add_argument(
        "--effort", type=int, default=64, help="search effort of ivf and hnsw: higher finds more (default: 64)"
    )
    parser.add_argument("--data", help="where the samples are, if they moved since they were embedded")
    parser.add_argument("-o", "--out", help="the contact sheet, a .png (default: a new one, named after the query)")
    options = parser.parse_args(arguments)
    check_run_there(options.run)
    check_files_there(options.embeddings, expected="a file that nearfar embed wrote")
    check_files_there(options.image, options.sound, expected="a file as the query")
    if options.k < 1:
        raise ValueError(f"-k is {options.k}, expected at least 1")

    from rich.console import Console

    from nearfar.search.contact_sheet import unused_name
    from nearfar.search.search_function import search

    kind = next(kind for kind in ("image", "sound", "text", "like") if getattr(options, kind) is not None)
    item = getattr(options, kind)
    stem = "-".join(re.findall(r"\w+", item))[:60] if kind == "text" else Path(item).stem
    out = Path(options.out) if options.out else unused_name(f"{stem}-neighbours")
    if out.suffix.lower() != ".png":
        raise ValueError(f"the contact sheet is {str(out)!r}, expected a name that ends in .png")
    console, how = Console(), {"k": options.k, "index": options.index, "effort": options.effort, "data": options.data}
    with console.status("searching"):
        asked = {"like": item} if kind == "like" else {"query": item, "kind": kind}
        found = search(options.run, options.embeddings, **asked, **how)
    if not found.has_pictures and options.out is not None:
        what = found.finder.encoder.modality.noun
        raise ValueError(f"{options.run} is an encoder of {what}: leave out -o, they are listed; use --text")
    if not console.is_terminal:  # a program reads it: no name is cut
        console = Console(width=max(console.width, 60 + max(map(len, found.names), default=0)))
    console.print(found.shown())
    if found.has_pictures:
        for line in found.write_sheet(out)[:3]:
            console.print(line, style="yellow", markup=False)
        console.print(f"contact sheet: {out}", soft_wrap=True, markup=False)
    return 0
