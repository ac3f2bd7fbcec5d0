"""From the arguments of the command to runs that can be shown."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from nearfar.evaluation.results import file_name
from nearfar.explore.layout import Layout
from nearfar.explore.live import state_of
from nearfar.explore.space import Run, Space
from nearfar.model.encoder import Loaded
from nearfar.search.embed import embed
from nearfar.search.files import Embeddings, stated

EMBEDDINGS = "embeddings.parquet"
Load = Callable[[str], Loaded]


def open_run(
    spec: str,
    load: Load,
    *,
    data: str | None = None,
    embeddings: str | Path | None = None,
    layout: Layout = "pca",
    progress: bool = True,
) -> Run:
    """A run with its embeddings: those of the file, those it has, or made now; of a run in progress its log alone.

    Args:
        spec: a run folder, or another encoder as `load` takes it.
        load: gives the encoder.
        data: what to embed, if not the run's own data; with `embeddings`, where the samples are.
        embeddings: a file of `nearfar embed`.
        layout: of the map.
        progress: show a bar.
    """
    folder = Path(spec).expanduser()
    if not folder.is_dir():
        if embeddings is None:
            raise ValueError(
                f"there is no run folder {spec!r}; give one, or another encoder with --embeddings FILE.parquet"
            )
        return Run(spec, None, Space(load(spec), Embeddings(embeddings), data=data, layout=layout))
    name = folder.resolve().name
    if state_of(folder) != "finished":
        if not (folder / "config.yaml").is_file():
            raise FileNotFoundError(
                f"{folder} holds neither an encoder nor a config.yaml, expected the folder of a run"
            )
        again = partial(open_run, spec, load, data=data, embeddings=embeddings, layout=layout, progress=progress)
        return Run(name, folder, None, lambda: again() if state_of(folder) == "finished" else None)
    encoder = load(spec)
    if embeddings is not None:
        return Run(name, folder, Space(encoder, Embeddings(embeddings), data=data, layout=layout))
    file = _embedded(folder, encoder, data, progress)
    return Run(name, folder, Space(encoder, Embeddings(file), data=data, layout=layout))


def _embedded(folder: Path, encoder: Loaded, data: str | None, progress: bool) -> Path:
    """The run's file of embeddings of these data, made where there is none of this encoder."""
    config = encoder.card.get("config")
    config = config if isinstance(config, Mapping) else {}
    own = str(config.get("data", ""))
    what = data or own
    if not what:
        raise ValueError(f"{folder} does not say what it was trained on; give --data or --embeddings")
    path = folder / (EMBEDDINGS if what == own else f"embeddings-{file_name(what)}.parquet")
    before = stated(path) if path.is_file() else None
    if before and before.get("encoder") == encoder.digest() and _same(before.get("data"), what):
        return path
    try:
        return embed(encoder, what, path, labels=_labels(config) if what == own else None, progress=progress).path
    except (ValueError, FileNotFoundError) as error:
        if data is None and not path.exists():
            raise type(error)(f"{error}; where the run's data are now is told by --data") from None
        raise


def _labels(config: Mapping[str, Any]) -> bool | None:
    sources = config.get("sources")
    found = sources.get("labels") if isinstance(sources, Mapping) else None
    return found if isinstance(found, bool) else None


def _same(before: object, what: str) -> bool:
    return before in (what, str(Path(what).expanduser().absolute()))  # also where they are no longer there
