"""`nearfar.explore`: the explorer's page, served beside the program that called it."""

import threading
import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from nearfar.data.python_data import as_data
from nearfar.explore import check_installed
from nearfar.explore.layout import Layout
from nearfar.explore.live import state_of
from nearfar.explore.open_run import open_run
from nearfar.explore.space import ExploredRun
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.notebook import Printed
from nearfar.python_objects import newly_registered, release

PATIENCE = 10.0  # seconds for the server to begin and to end


class Explorer(Printed):
    """A page that is served until `stop`, or until the program ends.

    Attributes:
        address: of the page.
        runs: what it shows.
    """

    def __init__(
        self,
        runs: Sequence[ExploredRun],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: bool = False,
        allowed: Sequence[str] = (),
        objects: Sequence[str] = (),
        notify: Callable[[str], None] = print,
    ) -> None:
        from nearfar.explore.serve import announced_app, bind, make_server

        self.runs, self._objects = list(runs), objects
        self._socket = bind(host, port)
        app, self.address = announced_app(
            self.runs, self._socket, host=host, token=token, allowed=allowed, notify=notify
        )
        self._server = make_server(app)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        end = time.monotonic() + PATIENCE
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._socket.close()
        for spec in self._objects:  # what was given for it
            release(spec)

    def wait(self) -> None:
        """Serve until Ctrl-C: for a script, whose end would end the server."""
        try:
            while self._thread.is_alive():
                self._thread.join(0.5)
        except KeyboardInterrupt:
            self.stop()

    def __enter__(self) -> "Explorer":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def shown(self) -> str:
        state = "" if self._thread.is_alive() else " (stopped)"
        return "\n".join([*map(described, self.runs), f"explore: {self.address}{state}"])

    def _repr_html_(self) -> str:
        lines = "<br>".join(map(escape, map(described, self.runs)))
        address = escape(self.address)
        return f'<p>{lines}</p><p>explore: <a href="{address}" target="_blank">{address}</a></p>'


def described(run: ExploredRun) -> str:
    """What the page shows of a run, in a line."""
    if run.space is not None:
        return f"{run.name}: {len(run.space):,} samples of {run.space.samples.data} in {run.space.file.path}"
    stopped = run.folder is not None and state_of(run.folder) == "stopped"
    return f"{run.name}: {'stopped before its end' if stopped else 'in training'}, so only its log is shown"


def opened_runs(
    runs: Sequence[str | Path | Encoder],
    *,
    data: Any = None,
    embeddings: Sequence[str | Path] | None = None,
    layout: Layout = "pca",
    progress: bool = True,
) -> list[ExploredRun]:
    """The runs with their embeddings; arguments as in `explore`."""
    if not runs:
        raise ValueError("no run was given, expected one encoder or several")
    if embeddings is not None and len(embeddings) != len(runs):
        raise ValueError(f"{len(runs)} runs and {len(embeddings)} --embeddings, expected one for each")
    check_installed()
    spec = None if data is None else as_data(data).path
    files: Sequence[str | Path | None] = [None] * len(runs) if embeddings is None else embeddings
    return [
        open_run(_name(run), _opener(run), data=spec, embeddings=file, layout=layout, progress=progress)
        for run, file in zip(runs, files, strict=True)
    ]


def explore(
    *runs: str | Path | Encoder,
    data: Any = None,
    embeddings: str | Path | Sequence[str | Path] | None = None,
    map: Layout = "pca",  # noqa: A002
    port: int = 0,
    host: str = "127.0.0.1",
    token: bool = False,
    allow_host: Sequence[str] = (),
    progress: bool = True,
) -> Explorer:
    """Serve a page with map, search, neighbors and duplicates of one run or two, and return at once.

    Args:
        runs: encoders, or their names as `nearfar.load` takes them; all but a run need data or embeddings.
        data: what to show, as `nearfar.train` takes it (None: the run's); with embeddings, where the samples are.
        embeddings: a file that `nearfar.embed` wrote, one for each run.
        map: "pca", or "umap", which needs nearfar[umap].
        port: 0: any free one.
        host: an address of a network needs a token, which is printed.
        token: need one here too: this machine has other users.
        allow_host: more names for the Host header, as of a proxy.
        progress: show a progress bar while the data are embedded.
    """
    files = [embeddings] if isinstance(embeddings, str | Path) else embeddings
    with newly_registered() as new:
        found = opened_runs(runs, data=data, embeddings=files, layout=map, progress=progress)
    return Explorer(found, host=host, port=port, token=token, allowed=allow_host, objects=new, notify=_unless_public)


def _unless_public(line: str) -> None:
    """The address is what is returned; a token is told nowhere else."""
    if "token=" in line:
        print(line)


def _name(run: str | Path | Encoder) -> str:
    if not isinstance(run, Encoder):
        return str(run)
    return str(run.folder) if run.folder is not None else str(run.card.get("backbone"))


def _opener(run: str | Path | Encoder) -> Callable[[str], Encoder]:
    return (lambda _: run) if isinstance(run, Encoder) else load
