"""Masked words: the loss is the mean cost of the hidden tokens, and its masks are drawn by sample."""

import pytest
import torch
import torch.nn.functional as F

from nearfar.methods import METHODS, MLM, Batch
from nearfar.methods.toy import toy_text_encoder
from nearfar.nn.masking import mask_tokens
from nearfar.nn.seeding import seeded_generator
from tests.support.facts import facts


def made(seed: int = 0) -> MLM:
    torch.manual_seed(0)
    method = MLM(toy_text_encoder(), features=16, mask_rate=0.4, seed=seed).double()
    return method.eval()


def test_the_loss_is_the_mean_cost_of_the_hidden_tokens_of_both_texts() -> None:
    method, tokens = made(), torch.randint(4, 40, (5, 8))
    tokens[1, 4:] = 0
    pair = [tokens, tokens.roll(1, 0)]
    index = torch.tensor([3, 8, 1, 4, 2])
    costs = []
    for number, text in enumerate(pair):
        generators = [seeded_generator(0, int(i), number) for i in index]
        masked, chosen = mask_tokens(text, vocab_size=40, mask=3, special=(0, 1, 2, 3), generator=generators, rate=0.4)
        states = method.encoder.states(masked)
        table = method.encoder.token_embedding.weight
        for row, place in chosen.nonzero().tolist():
            scores = table @ method.masked_words.transform(states[row, place]) + method.masked_words.bias
            costs.append(F.cross_entropy(scores[None], text[row, place][None]))
    step = method(Batch(pair, index, index))
    torch.testing.assert_close(step.loss, torch.stack(costs).mean(), rtol=1e-6, atol=1e-6, check_dtype=False)
    torch.testing.assert_close(step.log["word_perplexity"], step.loss.exp())


def test_a_sentence_alone_is_masked_twice_and_otherwise_at_each_step() -> None:
    method, tokens, index = made(seed=4), torch.randint(4, 40, (5, 8)), torch.arange(5)
    alone = method.encode(Batch([tokens], index, index))
    assert not torch.equal(alone["z1"], alone["z2"])
    again = method.encode(Batch([tokens], index, index))
    assert torch.equal(alone["z1"], again["z1"]) and not torch.equal(
        alone["z1"], made(seed=5).encode(Batch([tokens], index, index))["z1"]
    )
    method.after_step(0.1)
    assert not torch.equal(method.encode(Batch([tokens], index, index))["z1"], again["z1"])


def test_training_lowers_the_perplexity() -> None:
    method, batches = METHODS["mlm"].toy()
    method.train()
    optimizer = torch.optim.AdamW(method.parameters(), lr=0.01)
    seen = []
    for _ in range(30):
        optimizer.zero_grad()
        step = method(batches[0])
        step.loss.backward()
        optimizer.step()
        seen.append(float(step.log["word_perplexity"]))
    assert sum(seen[-3:]) < 0.7 * sum(seen[:3])


def test_a_tokenizer_without_a_mask_and_an_encoder_without_states_are_refused() -> None:
    with pytest.raises(ValueError, match=facts("[MASK] mlm")):
        MLM(toy_text_encoder(), features=16, mask_token=None)
    with pytest.raises(ValueError, match=facts("Linear states")):
        MLM(torch.nn.Linear(2, 3), features=3)
