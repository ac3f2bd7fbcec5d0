"""Open runs for the explorer, embedding their data where that was not done."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from nearfar.data.downloads import named_by_run
from nearfar.evaluation.results import file_name
from nearfar.explore.layout import Layout
from nearfar.explore.live import state_of
from nearfar.explore.space import ExploredRun, Space
from nearfar.model.card import is_of_run
from nearfar.model.encoder import Encoder
from nearfar.model.stopped import has_model, is_stopped
from nearfar.python_objects import is_object
from nearfar.search.embed import embed
from nearfar.search.files import Embeddings, read_about
from nearfar.weights.names import parse_name

EMBEDDINGS = "embeddings.parquet"
Load = Callable[[str], Encoder]


def open_run(
    spec: str,
    load: Load,
    *,
    data: str | None = None,
    embeddings: str | Path | None = None,
    layout: Layout = "pca",
    progress: bool = True,
) -> ExploredRun:
    """A run with its embeddings: from a file, from its folder, or made now; without any while it is in training.

    Args:
        spec: a run folder, or another encoder as `load` takes it, whose embeddings then lie in embeddings/NAME.
        load: returns the encoder.
        data: what to embed (default: the run's own data); with `embeddings`, where the samples are.
        embeddings: a file that `nearfar embed` wrote.
        layout: of the map.
        progress: show a progress bar.
    """
    folder = Path(spec).expanduser()
    if not folder.is_dir() or parse_name(spec, hub=True).kind != "folder":
        encoder = load(spec)
        if embeddings is None and data is None:
            raise ValueError(f"{spec!r} is an encoder without data; give --data, or --embeddings FILE.parquet")
        place = Path("embeddings") / file_name(spec)
        file = _embeddings_of(place, encoder, data, progress) if embeddings is None else embeddings
        return ExploredRun(spec, None, Space(encoder, Embeddings(file), data=data, layout=layout))
    name = folder.resolve().name
    if state_of(folder) == "training" or not (has_model(folder) or is_stopped(folder)):
        if not (folder / "config.yaml").is_file():
            raise FileNotFoundError(f"{folder} holds neither an encoder nor a config.yaml, expected a run folder")
        again = partial(open_run, spec, load, data=data, embeddings=embeddings, layout=layout, progress=progress)
        return ExploredRun(name, folder, None, lambda: again() if state_of(folder) == "finished" else None)
    encoder = load(spec)
    file = _embeddings_of(folder, encoder, data, progress) if embeddings is None else embeddings
    return ExploredRun(name, folder, Space(encoder, Embeddings(file), data=data, layout=layout))


def _embeddings_of(folder: Path, encoder: Encoder, data: str | None, progress: bool) -> Path:
    """The run's file of embeddings of these data; written where it is missing or from another encoder."""
    config = encoder.card.get("config") if is_of_run(encoder.card) else None
    config = config if isinstance(config, Mapping) else {}
    section = config.get("data")
    section = section if isinstance(section, Mapping) else {}
    own = str(section.get("path", ""))
    what = data or own
    if not what:
        raise ValueError(f"{folder} does not name its data; give --data or --embeddings")
    path = folder / (EMBEDDINGS if what == own else f"embeddings-{file_name(what)}.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    before = read_about(path) if path.is_file() else None
    same = (what, str(Path(what).expanduser().absolute()))  # even where they do not exist any more
    if not is_object(what) and before and before.get("encoder") == encoder.digest() and before.get("data") in same:
        return path
    try:
        labels = _labels(section) if what == own else None
        # A run may be anyone's.
        with named_by_run(folder, encoder.modality.suffixes, own) if data is None else nullcontext():
            return embed(encoder, what, path, labels=labels, progress=progress).path
    except (ValueError, FileNotFoundError) as error:
        if data is None and not path.exists():
            raise type(error)(f"{error}; if the run's data moved, give --data") from None
        raise


def _labels(section: Mapping[str, Any]) -> bool | None:
    found = section.get("labels")
    return found if isinstance(found, bool) else None
