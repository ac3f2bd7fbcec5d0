"""`nearfar explore`: a local web page for one run or two: map, search, neighbours, duplicates, live view."""

import contextlib
from functools import partial

from nearfar.cli.parser import Parser
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
    parser.add_argument("--host", default="127.0.0.1", help="an address of a network needs a token, which is printed")
    parser.add_argument("--token", action="store_true", help="need a token here too: this machine has other users")
    parser.add_argument("--allow-host", nargs="+", default=[], help="more names for the Host header, as of a proxy")
    options = parser.parse_args(arguments)
    if options.embeddings is not None and len(options.embeddings) != len(options.run):
        raise ValueError(f"{len(options.run)} runs and {len(options.embeddings)} --embeddings, expected one for each")
    check_installed()

    from nearfar.explore.live import state_of
    from nearfar.explore.open_run import open_run
    from nearfar.explore.serve import bind, serve
    from nearfar.model.load import load

    bind(options.host, options.port).close()  # a bad address is an error before the data are embedded
    files = options.embeddings or [None] * len(options.run)
    runs = [
        open_run(run, load, data=options.data, embeddings=file, layout=options.map)
        for run, file in zip(options.run, files, strict=True)
    ]
    for run in runs:
        if run.space is None:
            stopped = run.folder is not None and state_of(run.folder) == "stopped"
            print(f"{run.name}: {'stopped before its end' if stopped else 'in training'}, so only its log is shown")
        else:
            print(f"{run.name}: {len(run.space):,} samples of {run.space.samples.data} in {run.space.file.path}")
    with contextlib.suppress(KeyboardInterrupt):
        where = {"host": options.host, "port": options.port, "token": options.token, "allowed": options.allow_host}
        serve(runs, **where, notify=partial(print, flush=True))
    return 0
