"""`nearfar select`: which samples to label next."""

from pathlib import Path

from nearfar.cli.parser import Parser
from nearfar.data.names import check_files_there, check_run_there, check_there
from nearfar.weights.names import EXPECTED


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar select",
        description="Select the samples to label next, write them with the reasons to a table, and the first of them "
        "to a contact sheet. Near-duplicates of what is selected or labelled are left out.",
    )
    parser.add_argument("data", help="a file that nearfar embed wrote, or with --encoder the data themselves")
    parser.add_argument("-n", type=int, required=True, help="number of samples to select")
    parser.add_argument("--encoder", help=f"encoder that embeds the data, or made the file of embeddings: {EXPECTED}")
    parser.add_argument(
        "--strategy",
        choices=["facility", "k-center", "typical", "uncertain", "random"],
        default="facility",
        help="facility: similar to as many others as possible; k-center: far from each other, outliers first; typical: "
        "the middle of each cluster; uncertain: between two classes, needs labels in --labelled; random "
        "(default: facility)",
    )
    parser.add_argument("--labelled", metavar="FILE", help="samples with a label: a table of path and label, or a list")
    parser.add_argument("--balance", choices=["clusters", "classes"], help="as many of each cluster, or stated class")
    parser.add_argument("--keep-duplicates", action="store_true", help="select near-duplicates too")
    parser.add_argument("--labels", action="store_true", help="sub-folders are classes, for --balance classes")
    parser.add_argument("--split", help="a part of the data, such as train")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    parser.add_argument("-o", "--out", default="selected.csv", help="the table (default: selected.csv)")
    parser.add_argument("--sheet", help="the contact sheet, a .png (default: named after the table)")
    parser.add_argument("--samples", help="where the samples are, if they moved since they were embedded")
    options = parser.parse_args(arguments)
    check_run_there(options.encoder)
    check_files_there(options.labelled, expected="a table or list of labelled samples")
    if options.encoder is None:
        check_files_there(options.data, expected="a file that nearfar embed wrote, or data with --encoder")
    else:
        check_there(options.data, run=options.encoder)

    from nearfar.model.load import load
    from nearfar.search.files import SUFFIXES
    from nearfar.selection.select import select
    from nearfar.selection.sheet import sheet_of

    embedded = Path(options.data).suffix.lower() in SUFFIXES and Path(options.data).is_file()
    encoder = None if options.encoder is None else load(options.encoder)
    found = select(
        options.data,
        options.n,
        encoder=None if embedded else encoder,
        strategy=options.strategy,
        labelled=options.labelled,
        balance=options.balance,
        duplicates=options.keep_duplicates,
        seed=options.seed,
        out=options.out,
        split=options.split,
        labels=options.labels or None,
    )
    print(found.shown())
    print(sheet_of(found, encoder, options.sheet or Path(options.out).with_suffix(".png"), data=options.samples))
    return 0
