"""Embeddings of a data set into a file, in chunks: reading, the forward pass and writing run at the same time."""

import hashlib
import json
import uuid
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from nearfar.data.cache import locked, write_file
from nearfar.data.class_folders import Level
from nearfar.data.dataset import Dataset, Skipped, label_names
from nearfar.data.python_data import ObjectData, as_data
from nearfar.devices import find_device
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.notebook import Printed
from nearfar.progress import print_note, progress_bar
from nearfar.python_objects import is_object, released_afterwards
from nearfar.search.chunks import ChunkFolder, chunk_folder, difference
from nearfar.search.files import output_suffix, read_about
from nearfar.search.location import signed

AHEAD = 2  # prepared batches that may wait


@dataclass(frozen=True)
class Embedded(Printed):
    """What was written."""

    path: Path
    rows: int
    dim: int  # numbers of a row
    skipped: list[Skipped]  # samples that could not be read
    resumed: int  # rows from an earlier, interrupted call

    def shown(self) -> str:
        return f"{self.rows:,} vectors of {self.dim} numbers: {self.path}"


class ReadOptions(TypedDict, total=False):
    """How `Encoder.open` reads data."""

    split: str | None  # such as "test"
    labels: bool | Level | None  # which sub-folders are labels
    path_column: str | None  # of a table, as the two below
    label_column: str | None
    root: str | None
    size: int | None  # side at which images are decoded; None: as in training, else 1.15 times the encoder's image size


def embed(
    run: str | Path | Encoder,
    data: Any,
    out: str | Path,
    *,
    dtype: Literal["float32", "float16"] = "float32",
    batch_size: int = 256,
    chunk: int = 16_384,
    device: str = "auto",
    progress: bool = True,
    **reading: Unpack[ReadOptions],
) -> Embedded:
    """Write the embedding of every image, sound, series or sentence to a file: path, label, vector.

    Finished chunks are kept in a folder beside the output until the end: after an interruption, a call with the same
    arguments continues after the last of them.

    Args:
        run: an encoder, or its name as `nearfar.load` takes it.
        data: a data set, its name as `Encoder.open` takes it, or an object as `nearfar.train` takes it; image files
            are decoded when they are needed.
        out: .parquet, .npz, or .npy with paths and labels in NAME.npy.csv. Other embeddings are replaced; a file that
            `embed` did not write is refused.
        dtype: of the stored numbers.
        batch_size: samples in one forward pass.
        chunk: rows in a chunk: what is held in memory, and lost by an interruption.
        device: where to compute; "auto" is the accelerator where there is one.
        progress: show a progress bar, and print what is deleted or replaced.
        reading: split, labels, size, path_column, label_column and root, as in `Encoder.open`.
    """
    path = Path(out).expanduser()
    output_suffix(path)
    if dtype not in ("float32", "float16"):
        raise ValueError(f"dtype is {dtype!r}, expected 'float32' or 'float16'")
    for name, value in (("batch_size", batch_size), ("chunk", chunk), ("size", reading.get("size"))):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
    encoder = run if isinstance(run, Encoder) else load(run)
    with released_afterwards(ObjectData):
        spec = None if isinstance(data, Dataset) else as_data(data).path
        samples = data if spec is None else encoder.open(spec, **reading)
    place = find_device(device)
    if len(samples) == 0:
        raise ValueError("the data has 0 samples, expected at least one")
    about = {
        "encoder": encoder.digest(),
        "backbone": encoder.card["backbone"],
        "image_size": encoder.card.get("image_size"),  # which a network of another library may be given anew
        "data": _absolute(spec),
        **({"object": uuid.uuid4().hex} if is_object(spec) else {}),  # a later one of its name may hold other samples
        **({"root": reading["root"]} if reading.get("root") else {}),
        "split": reading.get("split"),
        "names": digest(samples.names),
        "labels": _digest_of_labels(samples),
        "size": samples.size,
        "dtype": dtype,
        "chunk": chunk,
    }
    about = signed(about)
    _check_replaced(path, about, progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(chunk_folder(path)):
        parts = ChunkFolder(path, about)
        if parts.dropped and progress:
            print_note(f"deleted the finished chunks of an earlier run: {parts.dropped}")
        chunks = [range(i, min(i + chunk, len(samples))) for i in range(0, len(samples), chunk)]
        done = parts.done()
        todo = [number for number in range(len(chunks)) if number not in done]
        resumed = sum(len(chunks[number]) for number in done)
        with progress_bar(progress, len(samples), done=resumed) as advance:
            _fill(parts, encoder, samples, {n: chunks[n] for n in todo}, dtype, batch_size, place, advance)
        rows, skipped = parts.finish()
    skipped = skipped or list(samples.skipped)
    list_skipped(path, skipped)
    return Embedded(path, rows, encoder.num_features, skipped, resumed)


def _fill(
    parts: ChunkFolder,
    encoder: Encoder,
    samples: Dataset,
    todo: dict[int, range],
    dtype: str,
    batch_size: int,
    device: torch.device,
    advance: Callable[[int], None],
) -> None:
    """Three steps at a time: one thread reads and prepares, this one runs the encoder, another writes."""
    training, before = encoder.training, encoder.device
    encoder.to(device).eval()
    writing: Future[None] | None = None
    with torch.inference_mode(), ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        batches = _prepared(encoder, samples, todo, batch_size, device, reader)
        try:
            for number, rows in todo.items():
                vectors = np.empty((len(rows), encoder.num_features), dtype)
                skipped: dict[int, Skipped] = {}  # by position in the chunk
                for start in range(0, len(rows), batch_size):
                    x, failed = next(batches)
                    h = encoder(x)
                    if h.ndim != 2 or len(h) != len(x):
                        raise ValueError(f"the encoder returns shape {tuple(h.shape)}, expected ({len(x)}, F)")
                    vectors[start : start + len(x)] = h.cpu().numpy()
                    skipped |= {start + place: why for place, why in failed.items()}
                    advance(len(x))
                kept = np.array([place not in skipped for place in range(len(rows))])
                read = [row for row, good in zip(rows, kept, strict=True) if good]
                names, labels = [samples.names[row] for row in read], label_names(samples.labels, samples.classes, read)
                if writing is not None:
                    writing.result()  # at most one chunk waits to be written
                writing = writer.submit(parts.write, number, names, labels, vectors[kept], list(skipped.values()))
            if writing is not None:
                writing.result()
        finally:
            batches.close()
            encoder.to(before).train(training)


def _prepared(
    encoder: Encoder,
    samples: Dataset,
    todo: dict[int, range],
    batch_size: int,
    device: torch.device,
    reader: ThreadPoolExecutor,
) -> Generator[tuple[Tensor, dict[int, Skipped]], None, None]:
    """Prepared batches in order, made ahead of their use, each with the samples that could not be read."""

    def make(rows: range) -> tuple[Tensor, dict[int, Skipped]]:
        index = torch.tensor(rows)
        with torch.inference_mode():
            x = encoder.prepare(samples.fetch(index).to(device))
        return x, samples.failed(index)

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


def _check_replaced(path: Path, about: dict[str, Any], progress: bool) -> None:
    """Print that other embeddings will be replaced; refuse files that `embed` did not write."""
    if not path.exists():
        return
    before = read_about(path)
    if before is None:
        raise FileExistsError(f"{path} exists and nearfar embed did not write it; give another name, or remove it")
    if progress and before != about:
        print_note(f"{path} will be replaced" + (f": {difference(before, about)}" if before else ""))


def list_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """Write the samples that could not be read, with the reasons, beside an output; no file where there are none."""
    file = path.with_name(f"{path.name}.skipped.txt")
    if not skipped:
        file.unlink(missing_ok=True)
        return
    write_file(file, "".join(f"{s.path}\t{s.reason}\n" for s in skipped))


def _absolute(spec: str | None) -> str | None:
    """A path made absolute, so that search finds the samples from anywhere; names of built-in data stay."""
    return str(Path(spec).expanduser().absolute()) if spec is not None and Path(spec).expanduser().exists() else spec


def digest(texts: Sequence[str]) -> str:
    """Of texts in their order."""
    digest = hashlib.blake2b(digest_size=12)
    for text in texts:
        digest.update(json.dumps(text).encode())
    return digest.hexdigest()


def _digest_of_labels(samples: Dataset) -> str | None:
    if samples.labels is None:
        return None
    return digest([*(samples.classes or []), samples.labels.numpy().tobytes().hex()])
