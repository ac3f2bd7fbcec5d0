"""Embeddings of every frame in time of every sample, in a file."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from nearfar.data.cache import locked
from nearfar.data.dataset import Dataset, label_names
from nearfar.model.encoder import Encoder
from nearfar.progress import progress_bar
from nearfar.search.chunks import ChunkFolder, chunk_folder
from nearfar.search.embed import digest, list_skipped

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
        out: .parquet or .npz, written batch by batch; an interrupted call continues after its last batch.
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
    about |= {"names": digest(data.names), "dtype": dtype, "batch_size": batch_size}
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(chunk_folder(path)), progress_bar(progress and "embedding frames", len(data)) as advance:
        chunks = ChunkFolder(path, about)
        done = chunks.done()
        for number, rows in enumerate(torch.arange(len(data)).split(batch_size)):
            if number not in done:
                _write_frames(chunks, number, model, data, rows, dtype)
            advance(len(rows))
        count, skipped = chunks.finish()
    list_skipped(path, skipped or data.skipped)
    return path, count


def _write_frames(chunks: ChunkFolder, number: int, model: Encoder, data: Dataset, rows: Tensor, dtype: str) -> None:
    frames, present = model.frames(model.prepare(data.fetch(rows).to(model.device)))
    sample, frame = (x.cpu() for x in present.nonzero().unbind(1))  # (R,), (R,)
    row_of_frame = rows[sample].tolist()
    chunks.write(
        number,
        [data.names[row] for row in row_of_frame],
        label_names(data.labels, data.classes, row_of_frame),
        frames[present].cpu().numpy().astype(dtype),  # (R, D)
        list(data.failed(rows).values()),
        frame=frame.numpy().astype(np.int32),
        time=((frame.double() + 0.5) * model.seconds_per_frame).numpy(),
    )
