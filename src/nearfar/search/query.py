"""An item of the user's as a query for a file of embeddings."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nearfar.model.encoder import Encoder
from nearfar.search.files import Embeddings


@torch.no_grad()
def encode_query(encoder: Encoder, file: Embeddings, item: Any, kind: str) -> Tensor:
    """(1, F): one item, read as the file's samples were, by the encoder that made them.

    Args:
        item: a path, a text, ... as `Encoder.encode` takes it.
        kind: what it is: "image", "sound" or "text".

    Raises:
        ValueError: where the encoder does not take that kind, the item cannot be read, or another encoder made the
            file.
    """
    if kind not in encoder.modality.queries:
        takes = " or ".join(f"--{each}" for each in encoder.modality.queries)
        raise ValueError(f"this encoder takes no {kind}: it was trained on {encoder.modality.noun}; search by {takes}")
    if kind == "text" and not str(item).strip():
        raise ValueError("the text is empty, expected a few words such as 'a red car'")
    check_maker(encoder, file)
    found = with_size_of(encoder, file).encode([item], kind=kind)
    if found.shape != (1, file.dim):
        raise ValueError(
            f"the {kind} has shape {tuple(found.shape)}, expected (1, {file.dim}); embed {file.path} again"
        )
    if not bool(found.isfinite().all()):
        raise ValueError(f"the embedding of the {kind} {str(item)[:60]!r} is not finite; was the model trained?")
    return found


def vector_of(encoder: Encoder, file: Embeddings, name: str) -> Tensor:
    """(1, F): the vector of the sample with that name in the file, for any kind of sample."""
    check_maker(encoder, file)
    row = next((row for row, each in enumerate(file.names()) if each == name), None)
    if row is None:
        raise ValueError(f"there is no {name!r} in {file.path}, expected a name of the file")
    for start, x in file.pieces():
        if row < start + len(x):
            return x[row - start : row - start + 1].float()
    raise AssertionError("the pieces are the whole file")


def with_size_of(encoder: Encoder, file: Embeddings) -> Encoder:
    """The encoder, decoding images at the size at which the file's were decoded."""
    size, modality = file.about.get("size"), encoder.modality
    if "image" not in modality.queries or not isinstance(size, int) or not 1 <= size <= 4096:
        return encoder
    reading = modality.reading(replace(modality.config.data, stored_size=size))
    return Encoder(encoder.backbone, reading, encoder.card, features=encoder.num_features, transform=encoder.transform)


def check_maker(encoder: Encoder, file: Embeddings) -> None:
    """Refuse embeddings of another encoder."""
    stated = file.about.get("encoder")
    if stated is not None and stated != encoder.digest():
        raise ValueError(f"{file.path} was made by another encoder than this; embed the data again with this run")
