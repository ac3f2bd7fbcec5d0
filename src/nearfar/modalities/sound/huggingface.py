"""Models of raw sound of `transformers` (wav2vec 2.0, HuBERT, WavLM, ...) as encoders."""

from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.nn.frames import pool_frames
from nearfar.weights.huggingface import open_model, settings_file

RATE = 16_000  # values a second, if a model does not say


class HuggingFaceWaves(nn.Module):
    """A model of `transformers`: waves x (B, 1, T), NaN behind their end, to h (B, F), the mean over time.

    Each wave is brought to mean 0 and deviation 1, if the model's preprocessor_config.json says so.

    Args:
        source: a local folder, or a name of the Hugging Face hub.
        pretrained: with its weights; else random.
    """

    def __init__(self, source: str, *, pretrained: bool = True) -> None:
        super().__init__()
        model: Any = open_model(source, pretrained=pretrained)
        strides = getattr(model.config, "conv_stride", None)
        if strides is None or not hasattr(model, "_get_feat_extract_output_lengths"):
            raise ValueError(
                f"{source}: a {type(model).__name__} does not take waves as wav2vec 2.0 does; choose another"
            )
        said = settings_file(source, "preprocessor_config.json") or {}
        self.scaled = said.get("do_normalize") is not False
        self.masked = getattr(model.config, "feat_extract_norm", "layer") == "layer"  # else it was trained without
        self.hop = prod(strides)
        self.num_features: int = model.config.hidden_size
        model.config.apply_spec_augment = False  # views are drawn before
        self.model = model.train()
        self.loaded = f"published weights of {source}" if pretrained else None

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1, T) to (B, L, F), and (B, L) booleans: False behind the end."""
        x = x[:, 0]
        real = ~x.isnan()
        lengths = real.sum(1)
        x = x.nan_to_num(0.0)
        if self.scaled:
            mean = (x.sum(1) / lengths)[:, None]
            deviation = ((x - mean).square() * real).sum(1) / lengths
            x = (x - mean) / (deviation[:, None] + 1e-7).sqrt() * real
        mask = {"attention_mask": real.long()} if self.masked else {}
        h: Tensor = self.model(input_values=x, **mask).last_hidden_state
        counts = self.model._get_feat_extract_output_lengths(lengths).clamp(min=1)
        return h, torch.arange(h.shape[1], device=h.device) < counts[:, None]

    def forward(self, x: Tensor) -> Tensor:
        return pool_frames(*self.frames(x), "mean")


def stated_rate(source: str) -> int:
    """Values a second that a model expects."""
    found = (settings_file(source, "preprocessor_config.json") or {}).get("sampling_rate", RATE)
    return found if isinstance(found, int) and found > 0 else RATE
