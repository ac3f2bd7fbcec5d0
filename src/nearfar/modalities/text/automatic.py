"""Backbone, batch and length of a run on sentences, from measured rules (docs/automatic.md)."""

from dataclasses import dataclass

from nearfar.data.config import DataConfig
from nearfar.modalities.automatic import Automatic, Request, fitting_batch
from nearfar.modalities.text.data import open_texts
from nearfar.modalities.text.encoders import BAG
from nearfar.settings import build

MANY = 1_000_000  # sentences, from which a Transformer may learn a language on a GPU
DROPPED = 0.5  # tokens left out of each view
BATCH, STEPS = 256, 500


@dataclass(frozen=True)
class TextFacts:
    """What is known of sentences before a run."""

    count: int
    paired: bool  # whether each has a partner, which is its other view
    scored: bool = False  # whether pairs have a score of how alike they are


def look_at(request: Request) -> TextFacts | None:
    """Count sentences; None if they cannot be read, which opening them will explain."""
    try:
        read: DataConfig = build(DataConfig, request.given.get("data", {}), "data")
        data = open_texts(request.data, read)
        return TextFacts(len(data), data.paired, data.scores is not None)
    except Exception:  # the run will open the data again, and say what is wrong with them
        return None


def choose(request: Request, facts: TextFacts) -> Automatic:
    """The settings of a run on these sentences, from random weights and with an encoder that nobody named."""
    chosen, count = Automatic(), facts.count
    if request.device.type != "cpu" and count >= MANY:
        chosen.choose("backbone", "text-small", f"{count:,} sentences on a GPU")
        return chosen
    chosen.choose("backbone", BAG, f"from {count:,} sentences more is learned of words than of their order")
    if not facts.paired:
        chosen.choose("text.dropout", DROPPED, "each view leaves out other words")
    if not facts.scored:  # of scored pairs whitened embeddings were the better ones
        chosen.choose("embedding", "plain", "neighbors by shared words; --embedding whitened to compare pairs")
    chosen.choose("batch_size", fitting_batch(BATCH, count))
    chosen.lay(request.method.short_run_of("text"))
    if not request.has_length:
        chosen.choose("steps", STEPS, "a usual length; --time, --steps or --epochs change it")
    return chosen
