"""Text encoders by name: small Transformers of our own for a CPU, and any that `transformers` can load."""

import difflib
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.losses.arguments import check_choice
from nearfar.nn.text import PADDING, PRESETS, Pooling, TextEncoder, by_length, check_tokens, pool_tokens, tanh_head
from nearfar.nn.token_bag import TokenBag
from nearfar.weights.huggingface import TRANSFORMERS, import_transformers, open_model, quiet

BAG = "text-bag"
_LEAST_GROUP = 128  # tokens, of models that take a millisecond for each


def text_encoder(
    name: str,
    *,
    vocab_size: int,
    max_length: int,
    pooling: Pooling = "mean",
    causal: bool = False,
    dropout: float | None = None,
    quick_gelu: bool = False,
    head: bool = False,
    normalize: bool = False,
    pretrained: bool = False,
) -> nn.Module:
    """An encoder of tokens (B, L) int64, 0 where there is no text, to features h (B, F), with F in its `num_features`.

    Args:
        name: "text-bag", a weighted sum of token vectors, for few texts; "text-micro", "text-tiny", "text-small" or
            "text-base", Transformers; or "transformers:" and a local folder or a name
            of the Hugging Face hub ("transformers:prajjwal1/bert-tiny"; extra `text`).
        vocab_size: token ids go up to this, exclusively; `Tokenizer.vocab_size`.
        max_length: tokens of a text at most.
        pooling: "mean" over the text, "cls": its first token, "last": its last.
        causal: a token sees those before it alone, as in CLIP; then `pooling` is "last" or "mean".
        dropout: in training. None: 0 for our own, the published rates for a model of `transformers`.
        quick_gelu: CLIP's activation in place of GELU.
        head: a linear layer and tanh after the pooling, kept with the encoder, as supervised SimCSE does.
        normalize: scale h to length 1, as many published models of `transformers` do.
        pretrained: with the published weights, safetensors only; else random.
    """
    if pretrained and name in (BAG, *PRESETS):
        raise ValueError(f"there are no pretrained weights of {name!r}; transformers:NAME has some")
    if name == BAG:
        if causal or quick_gelu:
            given = "causal" if causal else "quick_gelu"
            raise ValueError(f"{given} is True, but {name!r} has no layers; leave {given} out")
        return TokenBag(vocab_size, max_length, dropout=dropout or 0.0, head=head)
    if name in PRESETS:
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
            quick_gelu=quick_gelu,
            head=head,
        )
    if not name.startswith(TRANSFORMERS):
        near = difflib.get_close_matches(name, (BAG, *PRESETS), n=1, cutoff=0.0)[0]
        raise ValueError(
            f"there is no text encoder {name!r}; the nearest known is {near!r}; a model of the package transformers "
            "is named 'transformers:FOLDER_OR_NAME'"
        )
    if causal or quick_gelu:
        given = "causal" if causal else "quick_gelu"
        raise ValueError(f"{given} is True, but {name!r} has its own architecture; leave {given} out")
    return PretrainedText(
        name.removeprefix(TRANSFORMERS),
        vocab_size=vocab_size,
        max_length=max_length,
        pooling=pooling,
        dropout=dropout,
        head=head,
        normalize=normalize,
        pretrained=pretrained,
    )


class PretrainedText(nn.Module):
    """A model of `transformers` behind `TextEncoder`'s interface; its own padding id is translated.

    Args:
        source: a local folder, or a name of the Hugging Face hub.
        vocab_size, max_length, pooling, dropout, head, normalize, pretrained: as for `text_encoder`.

    Weights are read from safetensors alone and no code of the source is run.
    """

    def __init__(
        self,
        source: str,
        *,
        vocab_size: int,
        max_length: int,
        pooling: Pooling = "mean",
        dropout: float | None = None,
        head: bool = False,
        normalize: bool = False,
        pretrained: bool = True,
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, ("cls", "mean", "last"))
        (self.model, self.is_part), self.normalize = _model(source, pretrained), normalize
        config: Any = self.model.config
        self.padding = _padding(config, source)
        if vocab_size > config.vocab_size:
            raise ValueError(
                f"vocab_size is {vocab_size}, but {source!r} knows {config.vocab_size} tokens; take its own tokenizer"
            )
        longest = _longest(config)
        if max_length > longest:
            raise ValueError(
                f"max_length is {max_length}, but {source!r} reads {longest} tokens at most; give a smaller one"
            )
        self.vocab_size: int = config.vocab_size
        self.max_length, self.pooling = max_length, pooling
        self.num_features: int = config.hidden_size
        self.head = tanh_head(self.num_features) if head else None
        if dropout is not None:
            for module in self.model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = dropout

    @property
    def token_embedding(self) -> nn.Embedding:
        embedding: nn.Embedding = self.model.get_input_embeddings()  # type: ignore[operator]
        return embedding

    def save_pretrained(self, folder: Path) -> None:
        """Write a folder that `transformers.AutoModel` opens."""
        with quiet(import_transformers("save_pretrained")):
            self.model.save_pretrained(folder)  # type: ignore[operator]

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, L) to h (B, F)."""
        h = by_length(lambda part: pool_tokens(self.states(part), part, self.pooling), tokens, _LEAST_GROUP)
        h = h if self.head is None else self.head(h)
        return F.normalize(h, dim=-1) if self.normalize else h

    def states(self, tokens: Tensor) -> Tensor:
        """tokens (B, L) to (B, L, F): what the model makes of each; at padding it is arbitrary."""
        check_tokens(tokens, self.vocab_size, self.max_length)
        real = tokens != PADDING
        first = torch.arange(tokens.shape[1], device=tokens.device) == 0  # so that no row sees nothing
        output = self.model(input_ids=exchanged(tokens, self.padding), attention_mask=(real | first).long())
        y: Tensor = output.last_hidden_state
        return y


def exchanged(tokens: Tensor, padding: int) -> Tensor:
    """The ids 0 and `padding` for each other: from a model's own numbering to one that pads with 0, and back.

    >>> exchanged(torch.tensor([0, 1, 2]), padding=1)
    tensor([1, 0, 2])
    """
    if padding == PADDING:
        return tokens
    return torch.where(tokens == padding, PADDING, torch.where(tokens == PADDING, padding, tokens))


def _model(source: str, pretrained: bool) -> tuple[nn.Module, bool]:
    """The part of a model that reads: the encoder of one that also writes, the text tower of one that also sees.

    Also whether it is such a part, which AutoModel would not open by itself.
    """
    whole: Any = open_model(source, pretrained=pretrained)
    model = whole
    if hasattr(model, "get_image_features"):
        model = model.text_model
    elif getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # ours is in its place: its weights would never get a gradient
    network: nn.Module = model.train()
    return network, model is not whole


def _padding(config: Any, source: str) -> int:
    padding = getattr(config, "pad_token_id", None)
    if padding is None:
        raise ValueError(f"{source!r} has no padding token in its config.json, expected pad_token_id; choose another")
    return int(padding)


def _longest(config: Any) -> int:
    """Tokens the model surely has positions for: where padding is not 0, as in RoBERTa, they may begin after its id."""
    positions = int(getattr(config, "max_position_embeddings", 0) or 0)
    if positions <= 0:
        return 1 << 30  # relative positions: any length
    padding = int(config.pad_token_id)
    return positions - (padding + 1 if 0 < padding < positions // 2 else 0)
