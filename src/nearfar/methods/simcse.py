"""SimCSE: a sentence must find itself, read again under another dropout, among the sentences of the batch."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.losses.arguments import check_at_least
from nearfar.methods.method import Batch, Encoded, Method, Step, Toy, all_differ
from nearfar.methods.pairs import check_dropout, pair_loss, readings, row_numbers
from nearfar.methods.toy import text_views, toy_method, toy_text_encoder
from nearfar.methods.views import add
from nearfar.nn.masking import BERT_RATE, mask_tokens_at
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.text import tanh_head, trim_padding


class SimCSE(Method):
    """Dropout is the only view; or, supervised, an entailed sentence is the view and a contradiction a hard negative.

    The batch's views are tokens (B, L): of the sentence alone, which is then read twice; of the sentence and its
    positive; or of the sentence, its positive and its contradictions, which are negatives of every sentence but those
    that, or whose positives, they repeat word for word. Sentences with equal ids are no negatives of each other.

    `Batch.negatives` says how many of the last views are contradictions; without it the third of three is. Of more than
    two readings or positives the loss is the mean over their pairs, each earlier one as the query.

    Args:
        encoder: tokens (B, L) to h (B, features), with dropout. For masked words, as `text_encoder` makes it.
        temperature: divides the cosine similarities.
        mlm: weight of a masked-language-model term beside the contrastive loss; the paper's, where it has one, is 0.1.
        warmup: the part of the run, from its beginning, that learns masked words alone.
        mask_rate: the part of the tokens to be guessed.
        seed: of the masks.
        mask_token, special_tokens: ids, of `Tokenizer.mask` and `Tokenizer.special`; in a run its tokenizer's.

    The head (one layer and tanh) is left behind after training, as in the unsupervised SimCSE. The supervised one keeps
    it: an encoder with a head of its own (`--text.head true`) gets no other. The recipe "paper" does so for pairs.

    Reference: Gao et al. 2021, eqs. 4 and 5, https://arxiv.org/abs/2104.08821
    """

    name = "simcse"
    when = "you have sentences alone, or with entailments and contradictions"
    reference = ("Gao et al. 2021", "https://arxiv.org/abs/2104.08821")
    also_needs = "dropout"
    modalities = ("text",)
    min_views, max_views = 1, None  # a sentence alone is read twice
    short_run = {"options": {"temperature": 0.1}}
    toy_options = {"mlm": 0.1, "mask_rate": 0.4}
    paper = {
        "text": {"pooling": "cls", "max_length": 32},
        "optimizer": {
            "name": "adamw",
            "lr": 3e-5,
            "scale_lr": "none",
            "weight_decay": 0.0,
            "schedule": "linear",
            "warmup_epochs": 0.0,
            "clip_norm": 1.0,
        },
    }
    host_numbers = ("steps", "progress")
    steps: Tensor  # () with the seed and the sample: its mask
    progress: Tensor  # () the part of the run that is done

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        temperature: float = 0.05,
        mlm: float = 0.0,
        warmup: float = 0.0,
        mask_rate: float = BERT_RATE,
        mask_token: int | None = 3,
        special_tokens: Sequence[int] = (0, 1, 2, 3),
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_at_least("mlm", mlm, 0.0)
        if not 0 <= warmup <= 1:
            raise ValueError(f"warmup is {warmup}, expected a fraction of the run from 0 to 1")
        if (mlm or warmup) and mask_token is None:
            raise ValueError(
                "the tokenizer has no mask token (such as [MASK] or <mask>), which mlm and warmup need; set both to 0, "
                "or give another tokenizer"
            )
        self.encoder = encoder
        own_head = getattr(encoder, "head", None) is not None
        self.projector = nn.Identity() if own_head else tanh_head(features)
        self.temperature, self.mlm, self.warmup, self.seed = temperature, mlm, warmup, seed
        self.mask_rate, self.mask_token, self.special_tokens = mask_rate, mask_token, tuple(special_tokens)
        self.masked_words = MaskedWords(encoder, features) if mlm or warmup else None
        self.idle = warmup > 0 and mlm == 0  # the head of masked words, after the warm-up
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("progress", torch.tensor(0.0))

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        return toy_method(cls, rows, encoder=toy_text_encoder, views=text_views, **{**cls.toy_options, **options})

    def encode(self, batch: Batch) -> Encoded:
        views, contradictions = readings(batch)
        check_dropout(self, views)
        z = [self.projector(self.encoder(x)) for x in (*views, *contradictions)]  # each (B, F)
        encoded = {"z1": z[0], "z2": z[1], **{f"more{i}": x for i, x in enumerate(z[2 : len(views)], 1)}}
        encoded["ids"] = batch.ids
        if contradictions:
            encoded |= {f"z{i}": x for i, x in enumerate(z[len(views) :], 3)}
            texts = (views[0], views[1], *contradictions)
            encoded["texts"] = torch.stack([row_numbers(x) for x in texts], 1)  # (B, 2 + n)
        if self.masked_words is not None and (self.mlm or self._warming()):
            encoded["surprise"], encoded["masked"] = self._guess(self.masked_words, batch)  # (B,), (B,)
        return encoded

    def contrast(self, encoded: Encoded) -> Step:
        z1, z2, ids = encoded["z1"], encoded["z2"], encoded["ids"]
        views = [z1, z2, *(x for name, x in encoded.items() if name.startswith("more"))]
        contradictions = [encoded[f"z{i}"] for i in range(3, 3 + len(encoded)) if f"z{i}" in encoded]
        texts = encoded.get("texts")  # where it is not known what they say, a contradiction counts for everyone
        losses = [
            pair_loss(a, b, contradictions, temperature=self.temperature, ids=ids, texts=texts)
            for a, b in combinations(views, 2)
        ]
        loss = add(losses) / len(losses)
        log: dict[str, Tensor] = {}
        if "surprise" in encoded:
            surprise = encoded["surprise"].sum() / encoded["masked"].sum().clamp(min=1)
            log = {"word_perplexity": surprise.detach().exp(), "info_nce": loss.detach()}
            loss = 0.0 * loss + surprise if self._warming() else loss + self.mlm * surprise
        candidates = 0 if self._warming() else len(z1) * (1 + len(contradictions))
        fair = all_differ(ids) & (not contradictions)  # contradictions are no draws from all sentences
        return Step(loss, z1.detach(), z2.detach(), candidates=candidates, fair=fair, log=log)

    def after_step(self, progress: float) -> None:
        self.set_number("steps", self.number("steps") + 1)
        self.set_number("progress", progress)

    def _warming(self) -> bool:
        return self.number("progress") < self.warmup

    def _guess(self, masked_words: "MaskedWords", batch: Batch) -> tuple[Tensor, Tensor]:
        """Of each sentence (B,) the nats that its masked words cost, and (B,) their number."""
        assert self.mask_token is not None
        tokens = batch.views[0]
        masked, chosen, places = mask_tokens_at(
            tokens,
            vocab_size=masked_words.vocab_size,
            mask=self.mask_token,
            special=self.special_tokens,
            # a text's own, whatever chunk of the batch and whatever process it is in
            generator=[seeded_generator(int(self.number("steps")), sample, self.seed) for sample in batch.samples],
            rate=self.mask_rate,
        )
        length = trim_padding(tokens).shape[1]
        masked, tokens, chosen = masked[:, :length], tokens[:, :length], chosen[:, :length]
        surprise = masked_words(self.encoder, masked, tokens, chosen, places=places)
        return surprise, chosen.sum(1)


class MaskedWords(nn.Module):
    """BERT's head: which token was here? Scores over the vocabulary by the encoder's own token embedding.

    Reference: Devlin et al. 2019, section 3.1, https://arxiv.org/abs/1810.04805
    """

    def __init__(self, encoder: nn.Module, features: int) -> None:
        super().__init__()
        embedding = getattr(encoder, "token_embedding", None)
        if not hasattr(encoder, "states") or not isinstance(embedding, nn.Embedding):
            raise ValueError(
                f"masked words need an encoder with states(tokens) and token_embedding, as text_encoder(...) makes it, "
                f"and {type(encoder).__name__} has none; set mlm and warmup to 0"
            )
        if embedding.embedding_dim != features:
            raise ValueError(
                f"the token embedding has {embedding.embedding_dim} features and the encoder gives {features}, "
                "expected the same for masked words; set mlm and warmup to 0"
            )
        self.vocab_size = embedding.num_embeddings
        self.transform = nn.Sequential(nn.Linear(features, features), nn.GELU(), nn.LayerNorm(features))
        self.bias = nn.Parameter(torch.zeros(self.vocab_size))

    def forward(
        self, encoder: nn.Module, masked: Tensor, tokens: Tensor, chosen: Tensor, places: Tensor | None = None
    ) -> Tensor:
        """(B,), the sum over a sentence's chosen tokens of `-log p(token)`; only those are scored.

        Args:
            masked: (B, L) what is read.
            tokens: (B, L) what was there.
            chosen: (B, L) booleans.
            places: (K, 2) rows and columns that hold all of these and maybe others, from `mask_tokens_at`, so that a
                device need not be asked how many are chosen. None: ask.
        """
        return self.cost(encoder, encoder.states(masked), tokens, chosen, places)  # type: ignore[operator]

    def cost(
        self, encoder: nn.Module, states: Tensor, tokens: Tensor, chosen: Tensor, places: Tensor | None = None
    ) -> Tensor:
        """The same of states (B, L, F) that are there already."""
        embedding: nn.Embedding = encoder.token_embedding  # type: ignore[assignment]
        if places is None:
            places = chosen.nonzero()
        else:
            places = places[places[:, 1] < tokens.shape[1]].to(tokens.device, non_blocking=True)
        rows, columns = places.unbind(1)
        scores = F.linear(self.transform(states[rows, columns]), embedding.weight, self.bias)  # (K, vocabulary)
        cost = F.cross_entropy(scores.float(), tokens[rows, columns], reduction="none")  # (K,)
        cost = torch.where(chosen[rows, columns], cost, 0.0)
        return cost.new_zeros(len(tokens)).index_add(0, rows, cost)
