"""From images to a file of embeddings: reading, the forward pass and writing side by side, in chunks."""

import hashlib
import json
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.data.cache import locked, replacing
from nearfar.data.dataset import Dataset, Skipped
from nearfar.modalities.image.data.opening import is_files, open_data
from nearfar.modalities.image.data.stream import StreamDataset
from nearfar.model.encoder import Encoder, Loaded, Model, SeriesModel, load
from nearfar.model.foreign.towers import PREFIXES, open_towers
from nearfar.search.chunks import Parts, difference, parts_folder
from nearfar.search.files import check_kind, stated
from nearfar.search.progress import bar, say

AHEAD = 2  # batches that may wait, read and prepared


@dataclass(frozen=True)
class Embedded:
    """What was written: rows and numbers in each, files that could not be read, rows taken from an earlier start."""

    path: Path
    rows: int
    dim: int
    skipped: list[Skipped]
    resumed: int


def embed(
    run: str | Path | Loaded,
    data: str | Path | Dataset,
    out: str | Path,
    *,
    dtype: Literal["float32", "float16"] = "float32",
    batch_size: int = 256,
    chunk: int = 16_384,
    device: str = "auto",
    size: int | None = None,
    split: str | None = None,
    labels: bool | None = None,
    progress: bool = True,
) -> Embedded:
    """Write the embedding of every image, sound, series or sentence to a file: path, label, vector.

    Finished chunks lie in a folder beside the output until the end. Killed and called again with the same arguments, it
    goes on after the last finished chunk.

    Args:
        run: a run folder, an exported folder, an image-text model as `open_towers` takes it, or an encoder.
        data: as in `open_data`, or a data set; pictures are decoded as they are needed and stored nowhere. For an
            encoder of sounds as in `open_sounds`, by way of the cache; of sentences as in `open_texts`, and their
            path is the sentence.
        out: .parquet, .npz, or .npy with paths and labels in NAME.npy.csv beside it. Embeddings of something else
            are replaced, and that is said; a file that `embed` did not write is refused.
        dtype: of the stored numbers.
        batch_size: images in one forward pass.
        chunk: rows in a chunk, the most that is in memory or lost by a kill.
        device: where to compute; "auto" is the accelerator where there is one.
        size: side at which files are decoded; None: 1.15 times the encoder's image size, as in training and
            evaluation. Data that is held as arrays keeps its own.
        split, labels: as in `open_data`.
        progress: show a bar, and say what is thrown away or replaced.
    """
    path = Path(out).expanduser()
    check_kind(path)
    if dtype not in ("float32", "float16"):
        raise ValueError(f"dtype is {dtype!r}, expected 'float32' or 'float16'")
    for name, value in (("batch_size", batch_size), ("chunk", chunk), ("size", size)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
    encoder = run if isinstance(run, Model) else loaded(run)
    place = _device(device)
    spec = str(data) if isinstance(data, str | Path) else None
    images = opened(data, encoder, size, split, labels) if isinstance(data, str | Path) else data
    if len(images) == 0:
        raise ValueError("the data has 0 samples, expected at least one")
    about = {
        "encoder": encoder.digest(),
        "backbone": encoder.card["backbone"],
        "data": _absolute(spec),
        "split": split,
        "names": _digest(images.names),
        "labels": _digest_of_labels(images),
        "size": images.size,
        "dtype": dtype,
        "chunk": chunk,
    }
    _tell_replaced(path, about, progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(parts_folder(path)):
        parts = Parts(path, about)
        if parts.dropped:
            say(progress, f"the finished chunks of an earlier start are thrown away: they have {parts.dropped}")
        chunks = [range(i, min(i + chunk, len(images))) for i in range(0, len(images), chunk)]
        done = parts.done()
        todo = [number for number in range(len(chunks)) if number not in done]
        resumed = sum(len(chunks[number]) for number in done)
        with bar(progress, "embedding", len(images), resumed) as advance:
            _fill(parts, encoder, images, {n: chunks[n] for n in todo}, dtype, batch_size, place, advance)
        rows, skipped = parts.finish()
    if not isinstance(images, StreamDataset):
        skipped = list(images.skipped)
    _list_skipped(path, skipped)
    return Embedded(path, rows, encoder.num_features, skipped, resumed)


def loaded(run: str | Path) -> Loaded:
    """An encoder: a run, or an image-text model as `open_towers` takes it."""
    return open_towers(str(run)) if str(run).startswith(PREFIXES) else load(run)


def opened(
    spec: str | Path,
    encoder: Loaded,
    size: int | None,
    split: str | None,
    labels: bool | None,
) -> Dataset:
    """The data; pictures are decoded when they are looked at where they are files."""
    if isinstance(encoder, SeriesModel):
        return encoder.open(spec, split=split)
    if not isinstance(encoder, Encoder):
        return encoder.open(str(spec), split=split, labels=labels)
    files, image_size = is_files(spec), encoder.preparation.size
    return open_data(spec, size=size, image_size=image_size, split=split, labels=labels, stream=files)


def _fill(
    parts: Parts,
    encoder: Loaded,
    images: Dataset,
    todo: dict[int, range],
    dtype: str,
    batch_size: int,
    device: torch.device,
    advance: Callable[[int], None],
) -> None:
    """Three things at once: a thread that reads and prepares, the forward pass here, a thread that writes."""
    training, before = encoder.training, next(encoder.parameters()).device
    encoder.to(device).eval()
    writing: Future[None] | None = None
    with torch.inference_mode(), ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        batches = _prepared(encoder, images, todo, batch_size, device, reader)
        try:
            for number, rows in todo.items():
                vectors = np.empty((len(rows), encoder.num_features), dtype)
                skipped: dict[int, Skipped] = {}  # by place in the chunk
                for start in range(0, len(rows), batch_size):
                    x, failed = next(batches)
                    part = slice(start, start + len(x))
                    vectors[part] = _checked(encoder(x), len(x)).cpu().numpy()
                    skipped |= {start + place: why for place, why in failed.items()}
                    advance(len(x))
                kept = np.array([place not in skipped for place in range(len(rows))])
                names, labels = _texts(images, rows, kept)
                if writing is not None:
                    writing.result()  # one chunk waits to be written, not more
                writing = writer.submit(parts.write, number, names, labels, vectors[kept], list(skipped.values()))
            if writing is not None:
                writing.result()
        finally:
            batches.close()
            encoder.to(before).train(training)


def _prepared(
    encoder: Loaded,
    images: Dataset,
    todo: dict[int, range],
    batch_size: int,
    device: torch.device,
    reader: ThreadPoolExecutor,
) -> Generator[tuple[Tensor, dict[int, Skipped]], None, None]:
    """Batches in order, the next ones made ready while one is used: (B, 3, S, S), and which are unreadable."""

    def make(rows: range) -> tuple[Tensor, dict[int, Skipped]]:
        index = torch.tensor(rows)
        with torch.inference_mode():
            x = encoder.prepare(images.fetch(index).to(device))
        return x, images.failed(index) if isinstance(images, StreamDataset) else {}

    batches = chain.from_iterable((r[i : i + batch_size] for i in range(0, len(r), batch_size)) for r in todo.values())
    waiting: list[Future[tuple[Tensor, dict[int, Skipped]]]] = []
    try:
        for rows in batches:
            waiting.append(reader.submit(make, rows))
            if len(waiting) > AHEAD:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    finally:
        for future in waiting:
            future.cancel()


def _checked(h: Tensor, count: int) -> Tensor:
    if h.ndim != 2 or len(h) != count:
        raise ValueError(f"the encoder returns shape {tuple(h.shape)} for {count} images, expected (B, F)")
    return h


def _texts(images: Dataset, rows: range, kept: NDArray[np.bool_]) -> tuple[list[str], list[str | None]]:
    names = [images.names[row] for row, good in zip(rows, kept, strict=True) if good]
    if images.labels is None:
        return names, [None] * len(names)
    numbers = images.labels[rows.start : rows.stop][torch.from_numpy(kept)].tolist()
    classes = images.classes
    return names, [None if n < 0 else str(n) if classes is None else classes[n] for n in numbers]


def _tell_replaced(path: Path, about: dict[str, Any], progress: bool) -> None:
    """Say that other embeddings will be replaced; refuse what is not ours."""
    if not path.exists():
        return
    before = stated(path)
    if before is None:
        raise FileExistsError(f"{path} is there and nearfar embed did not write it; give another name, or remove it")
    if not before:
        say(progress, f"{path} is there and will be replaced")
    elif before != about:
        say(progress, f"{path} is there and will be replaced: it has {difference(before, about)}")


def _list_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    file = path.with_name(f"{path.name}.skipped.txt")
    if not skipped:
        file.unlink(missing_ok=True)
        return
    with replacing(file) as fresh:
        fresh.write_text("".join(f"{s.path}\t{s.reason}\n" for s in skipped), encoding="utf-8")


def _absolute(spec: str | None) -> str | None:
    """A path in full, so that search finds the pictures from anywhere; names stay."""
    return str(Path(spec).expanduser().absolute()) if spec is not None and Path(spec).expanduser().exists() else spec


def _digest(texts: Sequence[str]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for text in texts:
        digest.update(json.dumps(text).encode())
    return digest.hexdigest()


def _digest_of_labels(images: Dataset) -> str | None:
    if images.labels is None:
        return None
    return _digest([*(images.classes or []), images.labels.numpy().tobytes().hex()])


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    torch.zeros(1, device=name)  # says so now where it is not there
    return torch.device(name)
