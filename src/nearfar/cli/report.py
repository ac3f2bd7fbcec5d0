"""`nearfar report`: the page of a run written anew, or several runs side by side."""

from pathlib import Path

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar report",
        description="Write report.html of a run anew from its folder; neither the data nor the encoder is needed. Of "
        "several runs, a page that compares them: numbers, curves over each other, differences in configuration. Where "
        "umap-learn is installed, UMAP is added to the map of a run once, which may take a minute.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run folder")
    parser.add_argument(
        "-o", "--out", help="where the comparison is written (default: comparison.html), or a copy of the one page"
    )
    options = parser.parse_args(arguments)

    from nearfar.evaluation.results import write_atomically
    from nearfar.report.compare import write_comparison
    from nearfar.report.page import write_report

    out = None if options.out is None else Path(options.out).expanduser()
    if out is not None and out.is_dir():
        raise IsADirectoryError(f"{out} is a folder, expected the name of a file to write")
    folders = [Path(run).expanduser() for run in options.runs]
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no run folder {str(folder)!r}; expected one that nearfar train wrote")
        if not any((folder / name).exists() for name in ("config.yaml", "metrics.jsonl", "evaluation.json")):
            raise ValueError(f"{folder} holds no run: it has no config.yaml, metrics.jsonl or evaluation.json")
    if len(folders) > 1:
        path = write_comparison(folders, out or Path("comparison.html"))
    else:
        path = write_report(folders[0], umap=True, tell=lambda line: print(line, flush=True))
        if out is not None:
            path = write_atomically(out, path.read_bytes())
    print(f"report: {path}")
    return 0
