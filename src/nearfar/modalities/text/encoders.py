"""Text encoders by name: small Transformers of our own for a CPU, and any that `transformers` can load."""

import difflib

from torch import nn

from nearfar.nn.text import PRESETS, Pooling, TextEncoder


def text_encoder(
    name: str,
    *,
    vocab_size: int,
    max_length: int,
    pooling: Pooling = "mean",
    causal: bool = False,
    dropout: float | None = None,
    pretrained: bool = False,
) -> nn.Module:
    """An encoder of tokens (B, L) int64, 0 where there is no text, to features h (B, F), with F in its `num_features`.

    Args:
        name: "text-micro", "text-tiny", "text-small" or "text-base"; or "transformers:" and a local folder or a name
            of the Hugging Face hub ("transformers:prajjwal1/bert-tiny"; extra `text`).
        vocab_size: token ids go up to this, exclusively; `Tokenizer.vocab_size`.
        max_length: tokens of a text at most.
        pooling: "mean" over the text, "cls": its first token, "last": its last.
        causal: a token sees those before it alone, as in CLIP; then `pooling` is "last" or "mean".
        dropout: in training. None: 0 for our own, the published rates for a model of `transformers`.
        pretrained: with the published weights, safetensors alone; else drawn anew.
    """
    if name in PRESETS:
        if pretrained:
            raise ValueError(f"there are no pretrained weights of {name!r}; 'transformers:' and a name has some")
        width, layers, heads = PRESETS[name]
        return TextEncoder(
            vocab_size,
            max_length,
            width=width,
            layers=layers,
            heads=heads,
            pooling=pooling,
            causal=causal,
            dropout=dropout or 0.0,
        )
    if not name.startswith("transformers:"):
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"there is no text encoder {name!r}; the nearest known is {near!r}; a model of the package transformers "
            "is named 'transformers:FOLDER_OR_NAME'"
        )
    if causal:
        raise ValueError(f"causal is True, but whether {name!r} is causal it decides itself; leave causal out")
    from nearfar.modalities.text.pretrained import PretrainedText

    return PretrainedText(
        name.removeprefix("transformers:"),
        vocab_size=vocab_size,
        max_length=max_length,
        pooling=pooling,
        dropout=dropout,
        pretrained=pretrained,
    )
