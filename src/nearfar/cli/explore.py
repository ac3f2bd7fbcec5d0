"""`nearfar explore`: a local web page of one run or two: map, search, neighbours, duplicates, live view."""

import contextlib
import importlib.util

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar explore",
        description="Serve a page on this machine: the map of a run's embeddings, search by picture, sound or text, "
        "neighbours, duplicates, and a run as it trains. With two runs, the neighbours of one query side by side.",
    )
    parser.add_argument("run", nargs="+", help="a run folder; another encoder with --embeddings")
    source = "what to show, if not the data of the run; with --embeddings, where the samples are"
    parser.add_argument("--data", help=source)
    parser.add_argument("--embeddings", nargs="+", help="files that nearfar embed wrote, one for each run")
    parser.add_argument("--map", choices=["pca", "umap"], default="pca", help="umap needs nearfar[umap] (default: pca)")
    parser.add_argument("--port", type=int, default=8642, help="0 takes any that is free (default: 8642)")
    parser.add_argument("--host", default="127.0.0.1", help="elsewhere than here a token is needed, which is printed")
    parser.add_argument("--token", action="store_true", help="need a token here, too: others have accounts")
    parser.add_argument("--allow-host", nargs="+", default=[], help="names under which a proxy asks")
    options = parser.parse_args(arguments)
    if options.embeddings is not None and len(options.embeddings) != len(options.run):
        raise ValueError(f"{len(options.run)} runs and {len(options.embeddings)} --embeddings, expected one for each")
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(f"the page needs {' and '.join(missing)}: pip install 'nearfar[serve]'")

    from nearfar.cli.encoder import encoder_of
    from nearfar.explore.live import state_of
    from nearfar.explore.open_run import open_run
    from nearfar.explore.serve import bound, serve

    bound(options.host, options.port).close()  # what cannot be served is told before the data are embedded
    files = options.embeddings or [None] * len(options.run)
    runs = [
        open_run(run, encoder_of, data=options.data, embeddings=file, layout=options.map)
        for run, file in zip(options.run, files, strict=True)
    ]
    for run in runs:
        if run.space is None:
            ended = run.folder is not None and state_of(run.folder) == "stopped"
            print(f"{run.name}: {'stopped before its end' if ended else 'in training'}, so only its log is shown")
        else:
            print(f"{run.name}: {len(run.space):,} samples of {run.space.samples.data} in {run.space.file.path}")

    def tell(line: str) -> None:
        print(line, flush=True)

    with contextlib.suppress(KeyboardInterrupt):  # the way to end it
        serve(
            runs,
            host=options.host,
            port=options.port,
            token=options.token,
            allowed=options.allow_host,
            tell=tell,
        )
    return 0
