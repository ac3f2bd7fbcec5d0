"""`nearfar duplicates`: near-duplicate groups in a file of embeddings."""

from pathlib import Path

from nearfar.cli.parser import Parser

SHOWN = 5  # groups, and names in each


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar duplicates",
        description="Find samples whose embeddings are nearer than chance explains, and write their groups. The "
        "threshold is found from the data: the largest distance at which chance explains at most 1 % of the pairs, "
        "estimated from how the number of neighbours grows with distance.",
    )
    parser.add_argument("embeddings", help="a file that nearfar embed wrote")
    parser.add_argument("-o", "--out", help="the table of path and group (default: EMBEDDINGS.groups.csv)")
    parser.add_argument("--threshold", type=float, help="a cosine (default: found from the data)")
    parser.add_argument("--index", choices=["exact", "ivf", "hnsw"], default="exact", help="ivf and hnsw need faiss")
    options = parser.parse_args(arguments)

    from nearfar.data.dataset import counted
    from nearfar.progress import progress_bar
    from nearfar.search.duplicates import check_threshold, find_duplicates, write_groups
    from nearfar.search.files import sample_embeddings
    from nearfar.search.index import lookup

    check_threshold(options.threshold)
    file = sample_embeddings(options.embeddings)
    find = lookup(file, options.index)
    with progress_bar("comparing", len(file)) as advance:
        found = find_duplicates(file, threshold=options.threshold, half=file.half, find=find, advance=advance)
    names, groups = file.names(), found.members()
    out = Path(options.out or f"{options.embeddings}.groups.csv")
    write_groups(out, names, found.groups, found.nearest.tolist())
    source = "given" if options.threshold is not None else "found from the data"
    shape = f", which has about {found.dimension:.1f} dimensions" if found.dimension is not None else ""
    print(f"threshold: cosine {found.threshold:.5f}, {source}{shape}")
    for rows in groups[:SHOWN]:
        more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        print(f"  {len(rows)}: {', '.join(names[row] for row in rows[:SHOWN])}{more}")
    if len(groups) > SHOWN:
        print(f"  and {len(groups) - SHOWN:,} more groups")
    print(f"{sum(map(len, groups)):,} of {len(file):,} samples are in {counted(len(groups), 'group')}: {out}")
    return 0
