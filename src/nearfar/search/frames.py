"""Frame by frame: every sample of a data set as rows in time, in a file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow
import torch
from pyarrow import parquet
from torch import Tensor

from nearfar.data.cache import replacing
from nearfar.data.dataset import Dataset
from nearfar.search.files import METADATA
from nearfar.search.progress import bar

KINDS = (".parquet", ".npz")


class FrameModel(Protocol):
    """An encoder with its preparation that gives frames, as `SeriesModel` does."""

    hop: int  # steps of the input to a frame
    card: dict[str, Any]

    def prepare(self, samples: Tensor) -> Tensor: ...

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]: ...

    def digest(self) -> str: ...


@torch.inference_mode()
def embed_frames(
    model: FrameModel,
    data: Dataset,
    out: str | Path,
    *,
    dtype: Literal["float32", "float16"] = "float32",
    batch_size: int = 64,
    name: str = "",
    progress: bool = True,
) -> tuple[Path, int]:
    """Write every frame of every sample: path, label, number of the frame, its time, vector.

    Args:
        model: in evaluation mode.
        data: as the model takes them.
        out: .parquet, written batch by batch, or .npz, which is held in memory.
        dtype: of the stored numbers.
        batch_size: samples in one forward pass.
        name: of the data, for the record.
        progress: show a bar.

    Returns:
        The file and its number of rows. Time is the middle of a frame: in seconds where the model states a rate of
        steps a second, else in steps.
    """
    path = Path(out).expanduser()
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"the output is {str(path)!r}, expected a name that ends in {' or '.join(KINDS)} for frames")
    about = {"encoder": model.digest(), "backbone": model.card["backbone"], "data": name, "frames": True}
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = _tables(model, data, dtype, batch_size, progress)
    with replacing(path) as fresh:
        rows = _as_parquet(tables, fresh, about) if path.suffix.lower() == ".parquet" else _as_npz(tables, fresh, about)
    return path, rows


def _tables(model: FrameModel, data: Dataset, dtype: str, batch_size: int, progress: bool) -> Iterator[Any]:
    seconds = 1 / float(getattr(model, "rate", None) or 1)
    device = next(model.parameters()).device if isinstance(model, torch.nn.Module) else torch.device("cpu")
    with bar(progress, "embedding frames", len(data), 0) as advance:
        for rows in torch.arange(len(data)).split(batch_size):
            frames, present = model.frames(model.prepare(data.fetch(rows).to(device)))
            sample, number = (x.cpu() for x in present.nonzero().unbind(1))  # (R,), (R,)
            vectors = frames[present].cpu().numpy().astype(dtype)  # (R, D)
            texts = [[data.names[row] for row in rows.tolist()], [_label(data, row) for row in rows.tolist()]]
            yield pyarrow.table(
                [
                    *(pyarrow.array([column[i] for i in sample.tolist()], pyarrow.string()) for column in texts),
                    pyarrow.array(number.numpy().astype(np.int32)),
                    pyarrow.array(((number.double() + 0.5) * model.hop * seconds).numpy()),
                    pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1]),
                ],
                names=["path", "label", "frame", "time", "vector"],
            )
            advance(len(rows))


def _label(data: Dataset, row: int) -> str | None:
    if data.labels is None or int(data.labels[row]) < 0:
        return None
    number = int(data.labels[row])
    return str(number) if data.classes is None else data.classes[number]


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
