"""Masked words: BERT's training task, as a method of its own."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.methods.method import Batch, Encoded, Method, Step, Toy
from nearfar.methods.simcse import MaskedWords
from nearfar.methods.toy import text_views, toy_method, toy_text_encoder
from nearfar.nn.masking import BERT_RATE, mask_tokens_at
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.text import trim_padding


class MLM(Method):
    """Some tokens of a text are hidden, and guessed from the others; nothing is contrasted.

    The batch's view is tokens (B, L) of a sentence, which is masked twice, or of a sentence and its partner, each
    masked once. The log has the perplexity of the guesses, `word_perplexity`.

    Args:
        encoder: tokens (B, L) to h (B, features), with `states(tokens)` and `token_embedding`, as `text_encoder` makes
            it.
        mask_rate: the part of the tokens to be guessed; 80 % of them are masked, 10 % random, 10 % left as they are.
        mask_token, special_tokens: ids, of `Tokenizer.mask` and `Tokenizer.special`; in a run its tokenizer's.
        seed: of the masks.

    The head reads the encoder's own token embedding, and is left behind after training.

    Reference: Devlin et al. 2019, section 3.1, https://arxiv.org/abs/1810.04805
    """

    name = "mlm"
    when = "texts are from a special field: start with it, then train simcse or pairs from its weights"
    reference = ("Devlin et al. 2019", "https://arxiv.org/abs/1810.04805")
    also_needs = "a Transformer that reads both ways"
    modalities = ("text",)
    min_views, max_views, usual_views = 1, 2, 1
    short_run = {"backbone": "text-tiny"}
    toy_options = {"mask_rate": 0.4}
    paper = {
        "text": {"max_length": 128},
        "optimizer": {
            "name": "adamw",
            "lr": 1e-4,
            "scale_lr": "none",
            "weight_decay": 0.01,
            "schedule": "linear",
            "warmup_ratio": 0.01,
        },
    }
    host_numbers = ("steps",)
    steps: Tensor  # () with the seed and the sample: its masks

    def __init__(
        self,
        encoder: nn.Module,
        *,
        features: int,
        samples: int = 0,
        mask_rate: float = BERT_RATE,
        mask_token: int | None = 3,
        special_tokens: Sequence[int] = (0, 1, 2, 3),
        seed: int = 0,
    ) -> None:
        super().__init__()
        if mask_token is None:
            raise ValueError(
                "the tokenizer has no mask token (such as [MASK] or <mask>), which mlm needs; give another tokenizer"
            )
        self.encoder = encoder
        self.masked_words = MaskedWords(encoder, features)
        self.mask_rate, self.mask_token, self.special_tokens = mask_rate, mask_token, tuple(special_tokens)
        self.seed = seed
        self.register_buffer("steps", torch.tensor(0))

    @classmethod
    def toy(cls, rows: int = 12, **options: Any) -> Toy:
        return toy_method(cls, rows, encoder=toy_text_encoder, views=text_views, **{**cls.toy_options, **options})

    def encode(self, batch: Batch) -> Encoded:
        texts = [batch.views[0], batch.views[-1]]
        (cost1, count1, z1), (cost2, count2, z2) = (self._guess(x, batch.samples, n) for n, x in enumerate(texts))
        return {"cost": cost1 + cost2, "masked": count1 + count2, "z1": z1, "z2": z2}  # (B,), (B,), (B, F) twice

    def contrast(self, encoded: Encoded) -> Step:
        loss = encoded["cost"].sum() / encoded["masked"].sum().clamp(min=1)
        return Step(loss, encoded["z1"], encoded["z2"], log={"word_perplexity": loss.detach().exp()})

    def after_step(self, progress: float) -> None:
        self.set_number("steps", self.number("steps") + 1)

    def _guess(self, tokens: Tensor, samples: Sequence[int], number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of each text (B,) the nats that its masked words cost, their number, and (B, F) the mean of its states."""
        step, stream = int(self.number("steps")), 2 * self.seed + number
        masked, chosen, places = mask_tokens_at(
            tokens,
            vocab_size=self.masked_words.vocab_size,
            mask=self.mask_token,
            special=self.special_tokens,
            # a text's own, whatever chunk of the batch and whatever process it is in
            generator=[seeded_generator(step, sample, stream) for sample in samples],
            rate=self.mask_rate,
        )
        length = trim_padding(tokens).shape[1]
        masked, tokens, chosen = masked[:, :length], tokens[:, :length], chosen[:, :length]
        states: Tensor = self.encoder.states(masked)  # type: ignore[operator]
        cost = self.masked_words.cost(self.encoder, states, tokens, chosen, places)
        there = (tokens != 0).unsqueeze(2)
        return cost, chosen.sum(1), ((states * there).sum(1) / there.sum(1).clamp(min=1)).detach()
