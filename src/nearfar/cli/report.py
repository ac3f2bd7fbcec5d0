"""`nearfar report`: write the report of a run again, or compare several runs."""

from nearfar.cli.parser import Parser
from nearfar.data.names import check_files_there


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar report",
        description="Write report.html of a run again from its folder; data and encoder are not needed. With several "
        "runs, write one page that compares their results, curves and configurations. Where umap-learn is installed, "
        "UMAP is added to the map once, which may take a minute.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run folder")
    parser.add_argument(
        "-o", "--out", help="file of the comparison (default: comparison.html), or for a copy of the one report"
    )
    options = parser.parse_args(arguments)
    check_files_there(*options.runs, expected="a run folder")

    from nearfar.report.report_function import report

    done = report(*options.runs, out=options.out, notify=lambda line: print(line, flush=True))
    print(f"report: {done.path}")
    return 0
