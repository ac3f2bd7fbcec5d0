"""The encoder that an argument names, for the commands that write and search embeddings."""

from nearfar.model.encoder import Encoder, Loaded
from nearfar.search.embed import loaded


def encoder_of(spec: str) -> Loaded:
    """A run or an exported folder; "timm:NAME" or "torchvision:NAME", with =FILE for local weights; "hf:FOLDER"."""
    if spec.startswith(("timm:", "torchvision:")):
        from nearfar.model.open import open_encoder

        found = open_encoder(spec)
        assert isinstance(found, Encoder)
        return found
    if spec.endswith(".onnx"):
        raise ValueError(f"the encoder is {spec!r}, expected a run folder, timm:NAME or torchvision:NAME")
    return loaded(spec)
