"""Settings of runs on sentences, and on images with captions. Needs no torch."""

from dataclasses import dataclass
from typing import Literal

from nearfar.settings import check_settings, setting


@dataclass(frozen=True)
class TextConfig:
    """How texts become tokens and features, in runs on sentences and on images with captions."""

    encoder: str = setting("text-tiny", "text encoder beside an image encoder; of sentences alone, the backbone")
    weights: str | None = setting(None, "start of the text encoder, as --weights; of sentences alone, the same")
    tokenizer: str | None = setting(
        None, "a tokenizer.json, its folder or a name of the Hugging Face hub; None: learned from the data"
    )
    vocab_size: int = setting(8192, "largest number of tokens of a learned tokenizer", least=260, most=10**7)
    max_length: int = setting(64, "tokens of a text at most; the rest is cut off", least=3, most=10**5)
    pooling: Literal["mean", "cls", "last"] = setting(
        "mean", "features of a text from those of its tokens: mean, first or last"
    )
    causal: bool = setting(False, "a token attends only to the tokens before it")
    quick_gelu: bool = setting(False, "activation x · sigmoid(1.702 x), as in CLIP, in place of GELU")
    head: bool | None = setting(
        None, "end the encoder with a linear layer and tanh; None: for sentence pairs of the recipe paper"
    )
    normalize: bool = setting(False, "features of length 1 from a model of transformers")
    dropout: float | None = setting(
        None, "dropout; None: 0.1 for sentences alone, where it makes the views, else 0", least=0, below=1
    )
    drop_words: float = setting(0.0, "fraction of its tokens that each view of a sentence leaves out", least=0, below=1)
    embed_dim: int = setting(256, "dimensions of the space that images and texts share", least=1, most=10**5)
    projection_width: int = setting(
        0,
        "units of a hidden layer between the text encoder and that space; 0: the projection is linear",
        least=0,
        most=10**5,
    )

    def __post_init__(self) -> None:
        check_settings(self, "text")
