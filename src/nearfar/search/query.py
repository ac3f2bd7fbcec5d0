"""A picture or a text of the user's as a query for a file of embeddings."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.modalities.image.data.decode import decode, why
from nearfar.modalities.image.data.opening import decoding_size
from nearfar.modalities.sound.files import why as why_silent
from nearfar.model.encoder import Encoder, SoundModel
from nearfar.search.files import Embeddings


def embed_image(encoder: Encoder, file: Embeddings, image: Path) -> Tensor:
    """(1, F): the picture, decoded as the file's were, seen by the encoder that made them.

    Raises:
        ValueError: where the file says that another encoder made it.
    """
    _check_maker(encoder.digest(), file)
    size = file.about.get("size")
    side = size if isinstance(size, int) and 1 <= size <= 4096 else decoding_size(encoder.preparation.size)
    picture = torch.from_numpy(picture_of(image, side).copy())  # (S, S, 3)
    return encoder.embed(picture.permute(2, 0, 1)[None])


def embed_sound(encoder: SoundModel, file: Embeddings, sound: Path) -> Tensor:
    """(1, F): the sound file, heard by the encoder that made the embeddings.

    Raises:
        ValueError: where the sound cannot be read, or the file says that another encoder made it.
    """
    _check_maker(encoder.digest(), file)
    try:
        return encoder.embed_files([sound.expanduser()])
    except ModuleNotFoundError:
        raise
    except Exception as error:  # soundfile raises of several kinds on broken files
        raise ValueError(f"{sound} cannot be read as a sound: {why_silent(error)}") from None


@torch.no_grad()
def embed_text(encoder: object, file: Embeddings, text: str) -> Tensor:
    """(1, F): a text as a query for images, by the text tower of the encoder that made the file; or for sentences.

    Args:
        encoder: with `embed_texts`, a list of B texts to (B, F), and where the file states who made it a `digest`.
        file: embeddings of images, or of sentences.
        text: such as "a red letter K".

    Raises:
        ValueError: where the encoder reads no texts, or the file is of another.
    """
    embed_texts, digest = getattr(encoder, "embed_texts", None), getattr(encoder, "digest", None)
    if not callable(embed_texts):
        raise ValueError(
            "this encoder has no text tower: it was trained on images alone; search with a picture, or with an "
            "image-text model"
        )
    if not text.strip():
        raise ValueError("the text is empty, expected a few words such as 'a red car'")
    if callable(digest):
        _check_maker(digest(), file)
    found: Tensor = embed_texts([text])
    if found.shape != (1, file.dim):
        raise ValueError(
            f"the text has shape {tuple(found.shape)} and {file.path} vectors of {file.dim} numbers, expected as many "
            "in both; embed the data again with this model"
        )
    if not bool(found.isfinite().all()):
        raise ValueError(f"the embedding of the text {text[:60]!r} is not finite; was the model trained to the end?")
    return found.cpu().float()


def _check_maker(digest: str, file: Embeddings) -> None:
    stated = file.about.get("encoder")
    if stated is not None and stated != digest:
        raise ValueError(f"{file.path} was made by another encoder than this; embed the data again with this run")


def picture_of(image: Path, side: int) -> NDArray[np.uint8]:
    """(side, side, 3), or a line that says why not."""
    try:
        return decode(image.expanduser(), side)
    except Exception as error:  # Pillow raises of every kind on broken files
        raise ValueError(f"{image} cannot be read as a picture: {why(error)}") from None
