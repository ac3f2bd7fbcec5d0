"""A Transformer text encoder, its presets, and pooling of token states."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor, nn

from nearfar.losses.arguments import check_choice
from nearfar.nn.attention import Transformer
from nearfar.nn.shard import Shard, all_reduce_max, current_shard, use_shard

PADDING = 0  # token id of padding; a tokenizer with another one is translated to this
PRESETS = {  # width, layers, heads; parameters without the token embedding
    "text-micro": (64, 2, 2),  # 0.1 M
    "text-tiny": (128, 4, 4),  # 0.8 M
    "text-small": (256, 6, 4),  # 4.7 M
    "text-base": (512, 12, 8),  # 38 M, the size of CLIP's
}
Pooling = Literal["cls", "mean", "last"]
LEAST_GROUP = 512  # tokens for which a pass of their own is worth its start, on a CPU
_ON_DEVICE = 64  # times as many elsewhere
_SHORTER = 0.8  # of the longest text of a group: shorter ones begin the next
_LONGEST: ContextVar[int | None] = ContextVar("nearfar_longest_text", default=None)


class TextEncoder(nn.Module):
    """Token embedding, learned positions, a pre-norm Transformer and pooling: tokens (B, L) to h (B, width).

    Padding comes after the text and does not change the result. A row of only padding gives finite features.

    Args:
        vocab_size, max_length, pooling, causal: as for `text_encoder`.
        width, layers, heads, dropout, quick_gelu: as for `Transformer`.
        head: a linear layer and tanh after the pooling, which belong to the encoder: supervised SimCSE's.

    >>> encoder = TextEncoder(100, 8, width=16, layers=1, heads=2)
    >>> encoder(torch.tensor([[1, 42, 2, 0], [1, 7, 7, 2]])).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        *,
        width: int,
        layers: int,
        heads: int,
        pooling: Pooling = "mean",
        causal: bool = False,
        dropout: float = 0.0,
        quick_gelu: bool = False,
        head: bool = False,
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, ("cls", "mean", "last"))
        if causal and pooling == "cls":
            raise ValueError("pooling is 'cls' and causal is True: the first token attends to no other; choose 'last'")
        self.vocab_size, self.max_length, self.pooling, self.num_features = vocab_size, max_length, pooling, width
        self.token_embedding = nn.Embedding(vocab_size, width)
        self.positions = nn.Parameter(torch.empty(max_length, width))
        self.dropout = nn.Dropout(dropout)
        self.transformer = Transformer(
            width, layers=layers, heads=heads, causal=causal, dropout=dropout, quick_gelu=quick_gelu
        )
        self.head = tanh_head(width) if head else None
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.01)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, L) to h (B, F)."""
        h = by_length(lambda part: pool_tokens(self.states(part), part, self.pooling), tokens)
        return h if self.head is None else self.head(h)

    def states(self, tokens: Tensor) -> Tensor:
        """tokens (B, L) to the Transformer's output (B, L, F); arbitrary at padding."""
        y: Tensor = self.transformer(self._embedded(tokens), tokens == PADDING)
        return y

    def attention(self, tokens: Tensor) -> Tensor:
        """Attention weights (B, layers, H, L, L) of each block."""
        return self.transformer.forward_with_weights(self._embedded(tokens), tokens == PADDING)[1]

    def _embedded(self, tokens: Tensor) -> Tensor:
        check_tokens(tokens, self.vocab_size, self.max_length)
        x: Tensor = self.dropout(self.token_embedding(tokens) + self.positions[: tokens.shape[1]])  # (B, L, F)
        return x


def tanh_head(features: int) -> nn.Sequential:
    """h (B, features) to (B, features): a linear layer and tanh, as BERT and SimCSE have it."""
    return nn.Sequential(nn.Linear(features, features), nn.Tanh())


def pool_tokens(states: Tensor, tokens: Tensor, pooling: Pooling) -> Tensor:
    """States (B, L, F) of tokens (B, L) to (B, F), without padding.

    >>> states = torch.tensor([[[1.0], [3.0], [100.0]]])
    >>> [pool_tokens(states, torch.tensor([[7, 8, 0]]), how).item() for how in ("cls", "mean", "last")]
    [1.0, 2.0, 3.0]
    """
    if pooling == "cls":
        return states[:, 0]
    real = tokens != PADDING  # (B, L)
    if pooling == "mean":
        return states.masked_fill(~real[:, :, None], 0.0).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
    position = torch.arange(tokens.shape[1], device=tokens.device)
    last = (position * real).amax(1)  # (B,)
    return states.gather(1, last[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]


def by_length(encode: Callable[[Tensor], Tensor], tokens: Tensor, least: int = LEAST_GROUP) -> Tensor:
    """Features (B, F) of texts (B, L), encoded in groups of similar length: the same features for less work.

    A batch is as long as its longest text, and most of it is padding. Each group is as long as its own longest text.
    Groups are found from the lengths of all rows of a batch, also where processes share it, so that dropout does not
    depend on their number. To train on an accelerator there is one group: to read lengths would be to wait for it.

    Args:
        encode: (b, l) tokens to (b, F), each row by itself.
        least: tokens of a group; fewer are not worth a pass of their own.
    """
    shard = current_shard()
    if tokens.ndim != 2 or _is_unread(tokens) or (len(tokens) == 0 if shard is None else len(tokens) != shard.count):
        return encode(trim_padding(tokens))
    lengths = (tokens != PADDING).sum(1)  # (B,)
    group = length_groups(lengths if shard is None else shard.gather(lengths), least)  # (B of all processes,)
    count = int(group.max()) + 1
    if count == 1:
        return encode(trim_padding(tokens))
    own = group if shard is None else shard.select(group)  # (B,)
    rows = [(own == number).nonzero()[:, 0] for number in range(count)]
    parts = []
    for number, places in enumerate(rows):
        with nullcontext() if shard is None else use_shard(_shard_of_group(shard, group == number)):
            parts.append(encode(trim_padding(tokens[places])))
    return torch.cat(parts)[torch.cat(rows).argsort()]


def length_groups(lengths: Tensor, least: int) -> Tensor:
    """(B,) the group of each text, by its length (B,): the longest are in group 0.

    >>> length_groups(torch.tensor([3, 10, 9, 3, 3, 10]), least=8)
    tensor([1, 0, 0, 1, 1, 0])
    """
    least *= 1 if lengths.device.type == "cpu" else _ON_DEVICE
    values, order = lengths.sort(descending=True, stable=True)
    longest_first: list[int] = values.tolist()
    first, numbers, number, left = 0, [], 0, sum(longest_first)
    for place, length in enumerate(longest_first):
        enough = (place - first) * longest_first[first] >= least and left >= least
        if length < _SHORTER * longest_first[first] and enough:
            first, number = place, number + 1
        numbers.append(number)
        left -= length
    return torch.empty_like(order).index_copy_(0, order, torch.tensor(numbers, device=order.device))


def _shard_of_group(shard: Shard, members: Tensor) -> Shard:
    """Which rows of a group are here; (total,) booleans say which rows of the batch are in it."""
    return Shard(shard.rank, tuple(int(part.sum()) for part in members.split(list(shard.sizes))))


def trim_padding(tokens: Tensor) -> Tensor:
    """Remove the last columns that are padding in every row: the same features for less work.

    If processes share a batch, in every row of all processes, so that dropout matches the full batch. A traced graph
    keeps them, since its later inputs may have text there. Training on an accelerator removes what is known on the host
    to be padding: see `longest_text`.

    >>> trim_padding(torch.tensor([[5, 6, 0, 0], [5, 0, 0, 0]]))
    tensor([[5, 6],
            [5, 0]])
    """
    if tokens.ndim != 2 or _is_tracing():
        return tokens
    if _is_unread(tokens):
        return tokens[:, : _LONGEST.get()]
    used = (tokens != PADDING).any(0).nonzero()
    length = int(used.max()) + 1 if len(used) else 1
    if current_shard() is not None:
        length = all_reduce_max(length, tokens.device)
    return tokens[:, :length]


def check_tokens(tokens: Tensor, vocab_size: int, max_length: int) -> None:
    """(B, L) integers below `vocab_size`, L from 1 to `max_length`."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dtype == torch.bool:
        kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"tokens is {kind}, expected a tensor of integers; Tokenizer.encode makes one of texts")
    if tokens.ndim != 2 or not 1 <= tokens.shape[1] <= max_length:
        raise ValueError(
            f"tokens has shape {tuple(tokens.shape)}, expected (B, L), L from 1 to {max_length}, as its tokenizer gives"
        )
    if _is_unread(tokens) or not tokens.numel():
        return
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocab_size:
        raise ValueError(
            f"tokens go from {low} to {high}, expected 0 to {vocab_size - 1}: is it the encoder's tokenizer?"
        )


@contextmanager
def longest_text(length: int | None) -> Iterator[None]:
    """No text is longer than so many tokens, for `trim_padding` on an accelerator; None: not known."""
    token = _LONGEST.set(length)
    try:
        yield
    finally:
        _LONGEST.reset(token)


def _is_unread(tokens: Tensor) -> bool:
    """Whether values are not looked at: a graph is being traced, or a training step would wait for its device."""
    return _is_tracing() or (tokens.device.type != "cpu" and torch.is_grad_enabled())


def _is_tracing() -> bool:
    """Whether a graph is being traced, in which values are not known."""
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]
