"""Sounds and their captions: a tower for each; the views are one of the sound, and one of its captions."""

from typing import Any

from nearfar.config import TrainConfig
from nearfar.modalities.automatic import Automatic, Request
from nearfar.modalities.captioned import CaptionedModality
from nearfar.modalities.sound.modality import SoundModality
from nearfar.modalities.text.encoders import BAG
from nearfar.weights.huggingface import KEPT_SOUNDS


class SoundTextModality(CaptionedModality, SoundModality):
    """Sounds whose captions are their other view."""

    name = "sound-text"
    noun = "captioned sounds"
    queries = ("sound", "text")
    protocols = ("knn", "linear", "zero_shot", "captions")
    how_captioned = "a table with the columns path and caption, or melodies"
    kept_config = KEPT_SOUNDS  # the other name is the text encoder's

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.local_views = 0

    @classmethod
    def recognizes(cls, data: str) -> bool:
        return False  # a caption is no reason: most methods leave it out

    @classmethod
    def defaults(cls, data: str) -> dict[str, Any]:
        settings = super().defaults(data)
        if data.partition(":")[0] == "melodies":
            settings["text"] = {"encoder": BAG, "vocab_size": 512, "max_length": 24, "embed_dim": 128}
        return settings

    @classmethod
    def automatic(cls, request: Request) -> Automatic:
        """As sounds alone, with a bag of words for the captions."""
        chosen = super().automatic(request)
        if not chosen.settings:
            return chosen
        chosen.settings.pop("adapt", None)  # neighbors among labels do not judge a joint space
        chosen.choose("text.encoder", BAG, "of few captions more is learned of words than of their order")
        return chosen
