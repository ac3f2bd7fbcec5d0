"""`nearfar mine`: hard negatives for a table of pairs."""

from pathlib import Path

from nearfar.cli.parser import Parser
from nearfar.data.names import check_files_there, check_run_there
from nearfar.weights.names import EXPECTED


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar mine",
        description="Write a table of pairs with hard negatives: texts that an encoder finds near the anchor, but not "
        "as near as its positive. nearfar train --method pairs reads it.",
    )
    parser.add_argument("run", help=f"the encoder: {EXPECTED}")
    parser.add_argument("pairs", help="a table of pairs: anchor and positive, or other names of two texts")
    parser.add_argument("-o", "--out", required=True, help="a .csv, .tsv, .jsonl or .parquet")
    parser.add_argument("--corpus", help="more texts to take negatives from: a .txt or a table")
    parser.add_argument("--split", help="a part of the pairs, such as train")
    parser.add_argument("--negatives", type=int, default=3, help="negatives of each pair (default: 3)")
    parser.add_argument("--range-min", type=int, default=0, help="skip this many of the nearest (default: 0)")
    parser.add_argument("--range-max", type=int, help="look no further than this rank (default: 10 for each negative)")
    parser.add_argument("--max-score", type=float, help="the largest cosine of a negative")
    parser.add_argument("--min-score", type=float, help="the smallest cosine of a negative")
    parser.add_argument(
        "--margin", type=float, default=0.0, help="least distance in cosine below the positive (default: 0)"
    )
    parser.add_argument(
        "--relative-margin",
        type=float,
        default=0.05,
        help="the same as a fraction of the positive's cosine (default: 0.05)",
    )
    parser.add_argument(
        "--sampling", choices=["top", "random"], default="top", help="take the nearest candidates, or draw among them"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of --sampling random")
    parser.add_argument("--index", choices=["exact", "ivf", "hnsw"], default="exact", help="ivf and hnsw need faiss")
    parser.add_argument("--device", default="auto", help="where to compute (default: the accelerator, else cpu)")
    options = parser.parse_args(arguments)
    check_run_there(options.run)
    check_files_there(options.corpus, expected="a .txt or a table")

    from nearfar.data.dataset import counted
    from nearfar.modalities.text.data import open_texts
    from nearfar.model.load import load
    from nearfar.search.mine import Mining, check_output, mine_negatives, write_negatives

    check_output(Path(options.out))
    settings = Mining(
        options.negatives,
        options.range_min,
        options.range_max,
        options.max_score,
        options.min_score,
        options.margin,
        options.relative_margin,
        options.sampling,
        options.seed,
    )
    pairs = open_texts(options.pairs, split=options.split)
    if not pairs.paired or pairs.partners is None:
        raise ValueError(f"{options.pairs} has no column of positives; expected columns anchor and positive")
    encoder = load(options.run, device=options.device)
    if not encoder.reads_texts:
        raise ValueError(f"{options.run} is an encoder of {encoder.modality.noun}, expected one that reads texts")
    corpus = [] if options.corpus is None else open_texts(options.corpus).sentences().texts
    found = mine_negatives(
        encoder, pairs.texts, pairs.partners, settings, corpus=corpus, index=options.index, progress=True
    )
    rows = write_negatives(Path(options.out), pairs.texts, pairs.partners, found)
    if rows < len(pairs):
        print(f"{counted(len(pairs) - rows, 'pair')} without {options.negatives} negatives left out")
    print(f"{counted(rows, 'pair')} with {counted(options.negatives, 'negative')} each: {options.out}")
    return 0
