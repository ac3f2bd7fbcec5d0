"""Settings of runs on sentences, and on images with captions. Needs no torch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TextConfig:
    """How texts become tokens and features, in runs on sentences and on images with captions."""

    encoder: str = "text-tiny"  # the text tower beside images; of sentences alone, `backbone` is the encoder
    tokenizer: str | None = None  # a tokenizer.json, its folder or a name of the Hugging Face hub; None: learned
    vocabulary: int = 8192  # tokens at most, where it is learned
    length: int = 64  # tokens of a text at most
    pooling: Literal["mean", "cls", "last"] = "mean"  # over the tokens of a text, or its first, or its last
    causal: bool = False  # a token sees those before it alone
    quick_gelu: bool = False  # activation x · sigmoid(1.702 x), as in CLIP, in place of GELU
    head: bool | None = None  # end the encoder with a linear layer and tanh; None: pairs of the recipe "paper" alone
    dropout: float | None = None  # None: 0.1 of sentences alone, whose only view it is, else 0
    dim: int = 256  # of the space that images and texts share

    def __post_init__(self) -> None:
        for name, least, most in (("vocabulary", 260, 10**7), ("length", 3, 10**5), ("dim", 1, 10**5)):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"text.{name} is {getattr(self, name)}, expected at least {least}, at most {most:,}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"text.dropout is {self.dropout}, expected a part from 0 to below 1")
