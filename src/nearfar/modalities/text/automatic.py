"""Backbone, batch and length of a run on sentences, from measured rules (docs/automatic.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nearfar.data.config import DataConfig
from nearfar.modalities.automatic import (
    Automatic,
    Request,
    choose_adaptation,
    choose_precision,
    fitting_batch,
    keep_better_start,
)
from nearfar.modalities.text.data import open_texts
from nearfar.modalities.text.encoders import BAG
from nearfar.modalities.text.tokenizer import Tokenizer
from nearfar.settings import build
from nearfar.weights.packages import INSTALL, package_path

MANY = 1_000_000  # sentences, from which a Transformer may learn a language on a GPU
DROPPED = 0.5  # tokens left out of each view
BATCH, STEPS = 256, 500
START = "minilm"  # package of weights that English sentences start from, if it is installed
ADAPTING_RATE = 2e-5  # of AdamW, for runs that start from pretrained weights
SCORES_RATE = 1e-4  # the same where people said how alike pairs are
LOWER_BLOCKS = 3  # of its seven: the vectors of tokens, and two layers
ADAPTING_DROP = 0.3  # tokens left out of each view of a pretrained encoder
ADAPTING_TIME = "5m"
LOOKED_AT = 200  # sentences
MOST_PIECES = 1.6  # tokens of a word, on average; English has about 1.2, German 2, of other letters all are unknown


@dataclass(frozen=True)
class TextFacts:
    """What is known of sentences before a run."""

    count: int
    paired: bool  # whether each has a partner, which is its other view
    scored: bool = False  # whether pairs have a score of how alike they are
    english: bool = False  # whether the words are those that the start was taught


def look_at(request: Request) -> TextFacts | None:
    """Count sentences; None if they cannot be read, which opening them will explain."""
    try:
        read: DataConfig = build(DataConfig, request.given.get("data", {}), "data")
        folder = Path(request.data).expanduser()
        split = "train" if folder.is_dir() and any(folder.glob("train.*")) else None  # as a run on it is split
        data = open_texts(request.data, read, split=split)
        english = request.may_choose_weights and request.has_package(START) and _reads(data.texts)
        paired = data.paired or read.positive_score is not None
        return TextFacts(len(data), paired, data.scores is not None, english)
    except Exception:  # the run will open the data again, and say what is wrong with them
        return None


def _reads(texts: Sequence[str]) -> bool:
    """Whether the start's tokenizer knows most words of these texts whole."""
    words = [texts[i].split()[:100] for i in range(0, len(texts), max(1, len(texts) // LOOKED_AT))]
    tokens = Tokenizer.load(package_path(START), max_length=1000).encode([" ".join(some) for some in words])
    pieces = int((tokens != 0).sum()) - 2 * len(words)  # without start and end
    return pieces <= MOST_PIECES * sum(map(len, words))


def choose(request: Request, facts: TextFacts) -> Automatic:
    """The settings of a run on these sentences, with weights or an encoder that nobody named."""
    chosen, count = Automatic(), facts.count
    if facts.english:
        chosen.choose("weights", f"package:{START}", "English sentences: pretrained on a billion pairs")
    if facts.english or request.starts_from_weights:
        choose_precision(chosen, request.device)
        taught = request.method.needs_labels or request.method.needs_scores or facts.paired
        scored = request.method.needs_scores
        choose_adaptation(request, chosen, lr=SCORES_RATE if scored else ADAPTING_RATE, taught=taught)
        chosen.lay(request.method.from_weights)
        if scored and f"package:{START}" in (request.given.get("weights"), chosen.settings.get("weights")):
            chosen.choose("adapt.freeze_blocks", LOWER_BLOCKS, "they cost a third of a step, and would hardly move")
        if not taught:
            chosen.choose("text.drop_words", ADAPTING_DROP, "each view leaves out other words")
        chosen.choose("embedding", "plain", "as the weights were taught to compare")
        if not request.has_length:
            chosen.choose("time", ADAPTING_TIME, "a usual length; --time, --steps or --epochs change it")
        return chosen
    keep_better_start(chosen)
    if request.device.type != "cpu" and count >= MANY:
        chosen.choose("backbone", "text-small", f"{count:,} sentences on a GPU")
        return chosen
    better = "" if request.has_package(START) else f"; pretrained weights are much better for English: {INSTALL}"
    chosen.choose("backbone", BAG, f"from {count:,} sentences more is learned of words than of their order{better}")
    if not facts.paired:
        chosen.choose("text.dropout", DROPPED, "each view leaves out other words")
    if not facts.scored:  # of scored pairs whitened embeddings were the better ones
        chosen.choose("embedding", "plain", "neighbors by shared words; --embedding whitened to compare pairs")
    chosen.choose("batch_size", fitting_batch(BATCH, count))
    chosen.lay(request.method.short_run_of("text"))
    if not request.has_length:
        chosen.choose("steps", STEPS, "a usual length; --time, --steps or --epochs change it")
    return chosen
