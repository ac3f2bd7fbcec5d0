"""Views of sentences: which words each leaves out."""

from pathlib import Path

import torch

from nearfar.config import TrainConfig, completed
from nearfar.modalities.text.tokenizer import Tokenizer
from nearfar.modalities.text.views import without_words
from nearfar.nn.shard import Shard
from nearfar.settings import build
from nearfar.training.setup import TrainingSetup
from tests.training.runs import QUIET

TEXTS = [f"the {i}th question is about number {i * 7}" for i in range(40)]


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_view_is_the_sentence_without_some_of_its_words_in_their_order() -> None:
    tokenizer = Tokenizer.train(TEXTS, vocab_size=400)
    tokens = tokenizer.encode(TEXTS)
    view = without_words(tokens, 0.4, tokenizer, draw())
    kept = 0
    for whole, part in zip(tokens.tolist(), view.tolist(), strict=True):
        words, left = ([x for x in row if x > 3] for row in (whole, part))
        rest = iter(words)
        assert left and all(word in rest for word in left)  # in the same order
        assert part[0] == 1 and 2 in part and all(x == 0 for x in part[part.index(2) + 1 :])
        kept += len(left)
    assert abs(kept / int((tokens > 3).sum()) - 0.6) < 0.06
    assert torch.equal(without_words(tokens, 0.0, tokenizer, draw()), tokens)


def test_neither_processes_nor_padding_change_a_row() -> None:
    tokenizer = Tokenizer.train(TEXTS, vocab_size=400)
    tokens = tokenizer.encode(TEXTS)
    whole = without_words(tokens, 0.3, tokenizer, draw())
    shards = [Shard(rank, (25, 15)) for rank in range(2)]
    parts = [without_words(s.select(tokens), 0.3, tokenizer, draw(), s) for s in shards]
    assert torch.equal(torch.cat(parts), whole)
    wider = torch.nn.functional.pad(tokens, (0, 5))
    assert torch.equal(without_words(wider, 0.3, tokenizer, draw())[:, : tokens.shape[1]], whole)


def test_each_reading_of_a_run_leaves_out_other_words(tmp_path: Path) -> None:
    data = tmp_path / "lines.txt"
    data.write_text("\n".join(TEXTS))
    given = {
        "data": str(data),
        "method": "simcse",
        "backbone": "text-micro",
        "text": {"drop_words": 0.3},
        "batch_size": 8,
    }
    setup = TrainingSetup(build(TrainConfig, completed({**given, "device": "cpu"}), "train"), QUIET)
    index = torch.arange(8)
    samples = setup.train.fetch(index)
    first, second = setup.modality.views(samples, setup.train, index, seed=0, step=0)
    assert not torch.equal(first, second) and not torch.equal(first, samples)
    again = setup.modality.views(samples, setup.train, index, seed=0, step=0)
    assert torch.equal(again[0], first) and torch.equal(again[1], second)
    assert not torch.equal(setup.modality.views(samples, setup.train, index, seed=0, step=1)[0], first)
