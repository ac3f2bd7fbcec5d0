"""`nearfar duplicates`: near-duplicate groups in a file of embeddings."""

from nearfar.cli.parser import Parser
from nearfar.data.names import check_files_there


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar duplicates",
        description="Find samples whose embeddings are closer than chance would explain, and write their groups. The "
        "threshold is found from the data: the largest distance at which chance explains at most 1 % of the pairs, "
        "estimated from how the number of neighbors grows with distance.",
    )
    parser.add_argument("embeddings", help="a file that nearfar embed wrote")
    parser.add_argument("-o", "--out", help="the table of path and group (default: EMBEDDINGS.groups.csv)")
    parser.add_argument(
        "--threshold", type=float, help="cosine from which samples are duplicates (default: found from the data)"
    )
    parser.add_argument("--index", choices=["exact", "ivf", "hnsw"], default="exact", help="ivf and hnsw need faiss")
    options = parser.parse_args(arguments)
    check_files_there(options.embeddings, expected="a file that nearfar embed wrote")

    from nearfar.search.duplicates_function import duplicates

    out = options.out or f"{options.embeddings}.groups.csv"
    print(duplicates(options.embeddings, threshold=options.threshold, index=options.index, out=out).shown())
    return 0
