"""Text encoders by name: small Transformers of our own for a CPU, and any that `transformers` can load."""

import difflib

from torch import nn

from nearfar.nn.text import PRESETS, Pooling, TextEncoder


def text_encoder(
    name: str,
    *,
    vocabulary: int,
    length: int,
    pooling: Pooling = "mean",
    causal: bool = False,
    dropout: float | None = None,
    quick_gelu: bool = False,
    head: bool = False,
    pretrained: bool = False,
) -> nn.Module:
    """An encoder of tokens (B, L) int64, 0 where there is no text, to features h (B, F), with F in its `num_features`.

    Args:
        name: "text-micro", "text-tiny", "text-small" or "text-base"; or "transformers:" and a local folder or a name
            of the Hugging Face hub ("transformers:prajjwal1/bert-tiny"; extra `text`).
        vocabulary: token ids go up to this, exclusively; `Tokenizer.vocabulary`.
        length: tokens of a text at most.
        pooling: "mean" over the text, "cls": its first token, "last": its last.
        causal: a token sees those before it alone, as in CLIP; then `pooling` is "last" or "mean".
        dropout: in training. None: 0 for our own, the published rates for a model of `transformers`.
        quick_gelu: CLIP's activation in place of GELU.
        head: a linear layer and tanh after the pooling, kept with the encoder, as supervised SimCSE does.
        pretrained: with the published weights, safetensors alone; else drawn anew.
    """
    if name in PRESETS:
        if pretrained:
            raise ValueError(f"there are no pretrained weights of {name!r}; 'transformers:' and a name has some")
        width, layers, heads = PRESETS[name]
        return TextEncoder(
            vocabulary,
            length,
            width=width,
            layers=layers,
            heads=heads,
            pooling=pooling,
            causal=causal,
            dropout=dropout or 0.0,
            quick_gelu=quick_gelu,
            head=head,
        )
    if not name.startswith("transformers:"):
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"there is no text encoder {name!r}; the nearest known is {near!r}; a model of the package transformers "
            "is named 'transformers:FOLDER_OR_NAME'"
        )
    if causal or quick_gelu:
        given = "causal" if causal else "quick_gelu"
        raise ValueError(f"{given} is True, but {name!r} has its own architecture; leave {given} out")
    from nearfar.modalities.text.pretrained import PretrainedText

    return PretrainedText(
        name.removeprefix("transformers:"),
        vocabulary=vocabulary,
        length=length,
        pooling=pooling,
        dropout=dropout,
        head=head,
        pretrained=pretrained,
    )
