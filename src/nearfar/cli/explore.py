"""`nearfar explore`: a local web page for one run or two: map, search, neighbors, duplicates, live view."""

import contextlib
from functools import partial

from nearfar.cli.parser import Parser
from nearfar.data.names import check_files_there, check_run_there, check_there
from nearfar.explore import check_installed
from nearfar.weights.names import EXPECTED


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar explore",
        description="Serve a web page on this machine: the map of a run's embeddings, search by image, sound or text, "
        "neighbours, duplicates, and the log of a run in training. With two runs, results are shown side by side.",
    )
    parser.add_argument("run", nargs="+", help=f"the encoder: {EXPECTED}; all but a run need --data or --embeddings")
    parser.add_argument("--data", help="data to show (default: the run's); with --embeddings, where the samples are")
    parser.add_argument("--embeddings", nargs="+", help="files that nearfar embed wrote, one for each run")
    parser.add_argument("--map", choices=["pca", "umap"], default="pca", help="umap needs nearfar[umap] (default: pca)")
    parser.add_argument("--port", type=int, default=8642, help="0 takes any free port (default: 8642)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to serve on; another than loopback needs a token, which is printed"
    )
    parser.add_argument(
        "--token", action="store_true", help="require a token on this machine too, if it has other users"
    )
    parser.add_argument("--allow-host", nargs="+", default=[], help="other allowed Host names, such as that of a proxy")
    options = parser.parse_args(arguments)
    for run in options.run:
        check_run_there(run)
    check_there(options.data, run=options.run[0])
    check_files_there(*options.embeddings or (), expected="a file that nearfar embed wrote")
    check_installed()

    from nearfar.explore.explore_function import described, opened_runs
    from nearfar.explore.serve import bind, serve

    bind(options.host, options.port).close()  # a bad address is an error before the data are embedded
    runs = opened_runs(options.run, data=options.data, embeddings=options.embeddings, layout=options.map)
    for run in runs:
        print(described(run))
    with contextlib.suppress(KeyboardInterrupt):
        where = {"host": options.host, "port": options.port, "token": options.token, "allowed": options.allow_host}
        serve(runs, **where, notify=partial(print, flush=True))
    return 0
