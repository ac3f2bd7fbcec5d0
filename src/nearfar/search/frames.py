"""Embeddings of every frame in time of every sample, in a file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow
import torch
from pyarrow import parquet

from nearfar.data.cache import replacing
from nearfar.data.dataset import Dataset, label_names
from nearfar.model.encoder import Encoder
from nearfar.progress import progress_bar
from nearfar.search.embed import list_skipped
from nearfar.search.files import METADATA

SUFFIXES = (".parquet", ".npz")


@torch.inference_mode()
def embed_frames(
    model: Encoder,
    data: Dataset,
    out: str | Path,
    *,
    dtype: Literal["float32", "float16"] = "float32",
    batch_size: int = 64,
    name: str = "",
    progress: bool = True,
) -> tuple[Path, int]:
    """Write a row for every frame of every sample: path, label, number of the frame, its time, vector.

    Args:
        model: in evaluation mode.
        data: samples of the model's modality.
        out: .parquet, written batch by batch, or .npz, built in memory.
        dtype: of the stored numbers.
        batch_size: samples in one forward pass.
        name: of the data, for the record.
        progress: show a bar.

    Returns:
        The file and its number of rows. Time is the middle of a frame: in seconds where the model knows the sample
        rate, else in steps.
    """
    path = Path(out).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"the output is {str(path)!r}, expected a name that ends in {' or '.join(SUFFIXES)}")
    about = {"encoder": model.digest(), "backbone": model.card["backbone"], "data": name, "frames": True}
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = _tables(model, data, dtype, batch_size, progress)
    with replacing(path) as fresh:
        rows = _as_parquet(tables, fresh, about) if path.suffix.lower() == ".parquet" else _as_npz(tables, fresh, about)
    list_skipped(path, data.skipped)
    return path, rows


def _tables(model: Encoder, data: Dataset, dtype: str, batch_size: int, progress: bool) -> Iterator[Any]:
    seconds, device = model.seconds_per_frame, model.device
    with progress_bar(progress and "embedding frames", len(data)) as advance:
        for rows in torch.arange(len(data)).split(batch_size):
            frames, present = model.frames(model.prepare(data.fetch(rows).to(device)))
            sample, number = (x.cpu() for x in present.nonzero().unbind(1))  # (R,), (R,)
            vectors = frames[present].cpu().numpy().astype(dtype)  # (R, D)
            texts = [[data.names[row] for row in rows.tolist()], label_names(data.labels, data.classes, rows.tolist())]
            yield pyarrow.table(
                [
                    *(pyarrow.array([column[i] for i in sample.tolist()], pyarrow.string()) for column in texts),
                    pyarrow.array(number.numpy().astype(np.int32)),
                    pyarrow.array(((number.double() + 0.5) * seconds).numpy()),
                    pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1]),
                ],
                names=["path", "label", "frame", "time", "vector"],
            )
            advance(len(rows))


def _as_parquet(tables: Iterator[Any], fresh: Path, about: dict[str, Any]) -> int:
    rows, writer = 0, None
    try:
        for table in tables:
            table = table.replace_schema_metadata({METADATA: json.dumps(about).encode()})
            writer = writer or parquet.ParquetWriter(fresh, table.schema, use_dictionary=["path", "label"])
            writer.write_table(table)
            rows += len(table)
    finally:
        if writer is not None:
            writer.close()
    return rows


def _as_npz(tables: Iterator[Any], fresh: Path, about: dict[str, Any]) -> int:
    table = pyarrow.concat_tables(list(tables))
    width = table.schema.field("vector").type.list_size
    vectors = table.column("vector").combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    with fresh.open("wb") as file:
        np.savez(
            file,
            path=np.array(table.column("path").to_pylist()),
            label=np.array([value or "" for value in table.column("label").to_pylist()]),
            frame=table.column("frame").to_numpy(),
            time=table.column("time").to_numpy(),
            vector=vectors,
            about=np.array(json.dumps(about)),
        )
    return len(table)
