"""`nearfar report`: write the report of a run again, or compare several runs."""

from pathlib import Path

from nearfar.cli.parser import Parser


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

    from nearfar.data.cache import write_file
    from nearfar.report import write_comparison, write_report

    out = None if options.out is None else Path(options.out).expanduser()
    if out is not None and out.is_dir():
        raise IsADirectoryError(f"--out is {out}, a folder, expected a file to write")
    folders = [Path(run).expanduser() for run in options.runs]
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no run folder {str(folder)!r}; expected one that nearfar train wrote")
        if not any((folder / name).exists() for name in ("config.yaml", "metrics.jsonl", "evaluation.json")):
            raise ValueError(f"{folder} holds no run: it has no config.yaml, metrics.jsonl or evaluation.json")
    if len(folders) > 1:
        path = write_comparison(folders, out or "comparison.html")
    else:
        path = write_report(folders[0], umap=True, notify=lambda line: print(line, flush=True))
        path = path if out is None else write_file(out, path.read_bytes())
    print(f"report: {path}")
    return 0
