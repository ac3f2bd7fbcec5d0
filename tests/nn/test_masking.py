"""Masking of tokens: its proportions, what it never touches, and that it is drawn from its generator alone."""

import pytest
import torch
from torch import Tensor

from nearfar.nn.masking import mask_tokens
from tests.support.facts import facts

VOCABULARY, MASK, SPECIAL = 1000, 3, (0, 1, 2, 3)


def sentences(rows: int = 400, length: int = 50) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, VOCABULARY, (rows, length), generator=generator)
    ends = torch.randint(2, length, (rows,), generator=generator)
    place = torch.arange(length)
    tokens[place >= ends[:, None]] = 0
    tokens[torch.arange(rows), ends - 1] = 2
    tokens[:, 0] = 1
    return tokens


def masked(tokens: Tensor, seed: int = 0, **options: object) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    settings = {"vocab_size": VOCABULARY, "mask": MASK, "special": SPECIAL} | options
    return mask_tokens(tokens, generator=generator, **settings)  # type: ignore[arg-type]


def test_the_papers_proportions() -> None:
    tokens = sentences()
    read, chosen = masked(tokens)
    words = tokens >= 4
    count = int(chosen.sum())

    def near(part: Tensor, whole: int, expected: float) -> bool:
        """Within four standard deviations."""
        return abs(int(part.sum()) / whole - expected) < 4 * (expected * (1 - expected) / whole) ** 0.5

    assert near(chosen, int(words.sum()), 0.15)
    assert near(read[chosen] == MASK, count, 0.8)
    assert near(read[chosen] == tokens[chosen], count, 0.1)
    other = (read != MASK) & (read != tokens)
    assert near(other[chosen], count, 0.1)
    assert len(read[other].unique()) > 0.8 * int(other.sum())  # spread over the vocabulary


def test_only_what_is_chosen_changes_and_special_tokens_never_are() -> None:
    tokens = sentences()
    for rate in (0.15, 1.0):
        read, chosen = masked(tokens, rate=rate)
        assert torch.equal(read[~chosen], tokens[~chosen])
        assert not chosen[torch.isin(tokens, torch.tensor(SPECIAL))].any()
        put = read[chosen & (read != MASK)]
        assert not torch.isin(put, torch.tensor(SPECIAL)).any()
    assert torch.equal(chosen, tokens >= 4)
    assert not masked(tokens, rate=0.0)[1].any()
    assert torch.equal(tokens, sentences())  # the input is left as it was


def test_special_tokens_may_lie_anywhere() -> None:
    tokens = torch.full((50, 20), 101)
    tokens[:, ::2] = 7
    read, chosen = masked(tokens, special=(0, 100, 101, 102, 103), mask=103, rate=1.0)
    assert torch.equal(chosen, tokens == 7)
    assert (read[chosen] == 103).any()


def test_drawn_from_the_generator_alone() -> None:
    tokens = sentences(20)
    before = torch.get_rng_state()
    first, again, other = masked(tokens), masked(tokens), masked(tokens, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match=facts("rate 1.5")):
        masked(sentences(2), rate=1.5)
    with pytest.raises(ValueError, match=facts("4 tokens vocabulary")):
        masked(torch.zeros(2, 3, dtype=torch.long), vocab_size=4)
