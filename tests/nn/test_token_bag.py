"""`TokenBag` beside plain loops."""

import math

import pytest
import torch
import torch.nn.functional as F

from nearfar.modalities.text.encoders import text_encoder
from nearfar.nn.token_bag import TokenBag
from tests.support.facts import facts

TEXTS = torch.tensor([[1, 42, 7, 7, 2, 0, 0], [1, 9, 2, 0, 0, 0, 0], [1, 42, 9, 55, 60, 61, 2]])


def test_equals_a_sum_over_the_tokens_of_each_text() -> None:
    encoder = TokenBag(70, 8, width=16).double()
    vectors = encoder.token_embedding.weight
    for row, h in zip(TEXTS.tolist(), encoder(TEXTS), strict=True):
        total = torch.zeros(16, dtype=torch.float64)
        for token in row:
            if token > 3:  # special tokens stand for no text
                total += math.log(1 + token + 1) * vectors[token]
        torch.testing.assert_close(h, total / total.norm(), rtol=1e-6, atol=1e-6)  # the weights are float32


def test_padding_and_order_change_nothing() -> None:
    encoder = TokenBag(70, 8, width=16)
    torch.testing.assert_close(encoder(TEXTS)[:2], encoder(TEXTS[:2, :5]))
    torch.testing.assert_close(encoder(TEXTS[:1, [0, 3, 1, 2, 4]]), encoder(TEXTS[:1]))


def test_untrained_cosines_are_those_of_weighted_counts() -> None:
    torch.manual_seed(0)
    encoder = TokenBag(70, 8, width=8192)
    counts = torch.zeros(3, 70).scatter_add_(1, TEXTS, torch.ones_like(TEXTS, dtype=torch.float32))
    expected = F.normalize(counts * encoder.token_weight)
    h = encoder(TEXTS)
    torch.testing.assert_close(h @ h.T, expected @ expected.T, rtol=0, atol=0.05)


def test_dropout_leaves_out_whole_tokens() -> None:
    torch.manual_seed(0)
    encoder = TokenBag(70, 8, width=32, dropout=0.5)
    one = F.normalize(encoder.token_embedding.weight[9], dim=0)
    readings = torch.cat([encoder(TEXTS[1:2]) for _ in range(40)])  # of one token of text
    gone = readings.norm(dim=1) == 0
    assert 0 < gone.sum() < 40
    torch.testing.assert_close(readings[~gone], one.expand(int((~gone).sum()), -1))
    assert torch.equal(encoder.eval()(TEXTS), encoder(TEXTS))


def test_other_tokenizers_have_other_special_tokens() -> None:
    encoder = TokenBag(70, 8)
    encoder.leave_out((0, 60, 61))
    assert encoder.token_weight[[0, 60, 61]].tolist() == [0, 0, 0]
    assert (encoder.token_weight[1:60] > 0).all()


def test_a_text_of_nothing_gives_finite_features_and_gradients() -> None:
    encoder = TokenBag(70, 8)
    h = encoder(torch.zeros(2, 4, dtype=torch.long))
    h.square().sum().backward()
    assert h.isfinite().all()
    assert encoder.token_embedding.weight.grad is not None
    assert encoder.token_embedding.weight.grad.isfinite().all()


def test_by_name() -> None:
    assert isinstance(text_encoder("text-bag", vocab_size=70, max_length=8, dropout=0.5), TokenBag)
    for options in ({"causal": True}, {"quick_gelu": True}):
        with pytest.raises(ValueError, match=facts(f"'text-bag' {next(iter(options))}")):
            text_encoder("text-bag", vocab_size=70, max_length=8, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=facts("'text-bag' weights")):
        text_encoder("text-bag", vocab_size=70, max_length=8, pretrained=True)
