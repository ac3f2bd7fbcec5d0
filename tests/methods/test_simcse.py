"""SimCSE: its losses as the paper defines them, its masked words, and that it separates sentences."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.losses.reference import cosine
from nearfar.methods import Batch, SimCSE
from nearfar.methods.pairs import row_numbers
from nearfar.modalities.text.tokenizer import Tokenizer
from nearfar.nn.text import TextEncoder
from tests.losses.agreement import rows
from tests.support.facts import facts

B, D, WORDS, LENGTH = 6, 16, 40, 8
IDS = torch.arange(B)


def make(*, dropout: float = 0.1, **options: object) -> SimCSE:
    torch.manual_seed(0)
    encoder = TextEncoder(WORDS, LENGTH, width=D, layers=2, heads=2, dropout=dropout)
    return SimCSE(encoder, features=D, **options)  # type: ignore[arg-type]


def make_batch(views: int = 1, seed: int = 0, ids: Tensor = IDS) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    tokens = [torch.randint(4, WORDS, (B, LENGTH), generator=generator) for _ in range(views)]
    return Batch(tokens, torch.arange(B), ids)


def test_unsupervised_equals_the_papers_double_loop() -> None:
    method = make().double()
    z1, z2 = rows(2, B, D)
    expected = []
    for i in range(B):
        scores = [cosine(z1[i], z2[j]) / 0.05 for j in range(B)]
        expected.append(torch.stack(scores).logsumexp(0) - scores[i])
    step = method.contrast({"z1": z1, "z2": z2, "ids": IDS})
    torch.testing.assert_close(step.loss, torch.stack(expected).mean())
    assert step.candidates == B


@pytest.mark.parametrize("ids", [IDS, torch.tensor([0, 1, 0, 2**62, -5, -5])])
def test_supervised_equals_the_papers_double_loop(ids: Tensor) -> None:
    """Every contradiction is a negative of every sentence; another's positive is, unless the ids are equal."""
    method = make().double()
    z1, z2, z3 = (z.requires_grad_() for z in rows(3, B, D))
    expected = []
    for i in range(B):
        others = [z2[j] for j in range(B) if j == i or ids[j] != ids[i]]
        scores = [cosine(z1[i], z) / 0.05 for z in [*others, *z3]]
        expected.append(torch.stack(scores).logsumexp(0) - cosine(z1[i], z2[i]) / 0.05)
    mean = torch.stack(expected).mean()
    step = method.contrast({"z1": z1, "z2": z2, "z3": z3, "ids": ids})
    torch.testing.assert_close(step.loss, mean)
    torch.testing.assert_close(
        torch.autograd.grad(step.loss, [z1, z2, z3]), torch.autograd.grad(mean, [z1, z2, z3]), rtol=1e-8, atol=1e-10
    )
    assert step.candidates == 2 * B


def test_a_contradiction_is_no_negative_of_whom_it_repeats() -> None:
    """What contradicts one sentence may be, word for word, another sentence or what follows from it."""
    method = make(dropout=0.0).double().eval()
    first, second, third = make_batch(3).views
    third[1], third[2], third[3] = first[4], second[5], third[0]
    longer = torch.cat([third, torch.zeros(B, 0, dtype=torch.long)], 1)
    encoded = method.encode(Batch([first, second, longer], IDS, IDS))
    z1, z2, z3 = (encoded[name] for name in ("z1", "z2", "z3"))
    expected = []
    for i in range(B):
        own = (first[i].tolist(), second[i].tolist())
        others = [*z2, *(z3[j] for j in range(B) if third[j].tolist() not in own)]
        expected.append(
            torch.stack([cosine(z1[i], z) / 0.05 for z in others]).logsumexp(0) - cosine(z1[i], z2[i]) / 0.05
        )
    torch.testing.assert_close(method.contrast(encoded).loss, torch.stack(expected).mean())
    alone = {name: x for name, x in encoded.items() if name != "texts"}
    assert method.contrast(alone).loss > method.contrast(encoded).loss + 1e-6


def test_rows_of_tokens_have_numbers_by_what_they_say() -> None:
    tokens = torch.randint(1, 50_000, (4000, 60), generator=torch.Generator().manual_seed(0))
    tokens[2000:, 30:] = 0
    tokens[1::2] = tokens[::2]
    tokens[1::2, 0] += 1  # one token apart
    numbers = row_numbers(tokens)
    assert len(numbers.unique()) == len(tokens)
    assert torch.equal(row_numbers(tokens[2000:, :30]), numbers[2000:])
    assert not torch.equal(row_numbers(torch.tensor([[5, 7]])), row_numbers(torch.tensor([[7, 5]])))


def test_one_view_is_read_twice_under_two_dropouts() -> None:
    method = make()
    encoded = method.encode(make_batch(1))
    assert encoded.keys() == {"z1", "z2", "ids"}
    assert not torch.equal(encoded["z1"], encoded["z2"])
    method.eval()
    encoded = method.encode(make_batch(1))
    assert torch.equal(encoded["z1"], encoded["z2"])
    assert method.encode(make_batch(3)).keys() == {"z1", "z2", "z3", "ids", "texts"}


def test_an_encoder_without_dropout_has_no_views() -> None:
    method = make(dropout=0.0)
    with pytest.raises(ValueError, match=facts("dropout=0.1")) as error:
        method(make_batch(1))
    assert "\n" not in str(error.value)
    assert method(make_batch(2)).loss.isfinite()  # pairs of sentences need none
    assert method.eval()(make_batch(1)).loss.isfinite()


def test_the_head_is_of_training_alone() -> None:
    method = make().eval()
    tokens = make_batch().views[0]
    assert torch.equal(method.embed(tokens), method.encoder(tokens))
    assert [type(part).__name__ for part in method.projector] == ["Linear", "Tanh"]


def test_masked_words_cost_what_their_probability_says() -> None:
    method = make(mlm=0.1, mask_rate=0.5, dropout=0.0).double()
    batch = make_batch(2)
    encoded = method.encode(batch)
    assert encoded["surprise"].shape == encoded["masked"].shape == (B,)
    seen = {}
    method.masked_words.register_forward_hook(lambda _, inputs, __: seen.update(zip("emtc", inputs, strict=True)))
    method.encode(batch)
    total = torch.zeros(B, dtype=torch.float64)
    states = method.encoder.states(seen["m"])
    for i, j in itertools.product(range(B), range(LENGTH)):
        if seen["c"][i, j]:
            scores = method.masked_words.transform(states[i, j]) @ method.encoder.token_embedding.weight.T
            total[i] -= scores.log_softmax(0)[seen["t"][i, j]]
    torch.testing.assert_close(encoded["surprise"].double(), total, rtol=1e-5, atol=1e-5)
    assert torch.equal(encoded["masked"], seen["c"].sum(1))

    step = method.contrast(encoded)
    mean = total.sum() / seen["c"].sum()
    torch.testing.assert_close(step.log["word_perplexity"].double(), mean.exp(), rtol=1e-5, atol=0)
    torch.testing.assert_close(step.loss, step.log["info_nce"] + 0.1 * mean, rtol=1e-6, atol=0)
    step.loss.backward()
    assert all(p.grad is not None for p in method.parameters())


def test_masked_words_cost_the_same_where_others_are_scored_beside_them() -> None:
    """As on an accelerator, which is not asked what is special."""
    method = make(mlm=0.1, dropout=0.0).double()
    tokens = make_batch(1).views[0]
    chosen = (torch.rand(tokens.shape, generator=torch.Generator().manual_seed(3)) < 0.4) & (tokens > 3)
    beside = chosen | (torch.rand(tokens.shape, generator=torch.Generator().manual_seed(4)) < 0.4)
    more = torch.cat([beside.nonzero(), torch.tensor([[0, LENGTH], [1, LENGTH + 3]])])  # of cut columns
    weights = list(method.parameters())
    found = []
    for places in (None, more):
        cost = method.masked_words(method.encoder, tokens, tokens, chosen, places)
        found.append((cost, *torch.autograd.grad(cost.sum(), weights, allow_unused=True, materialize_grads=True)))
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-8)


def test_masks_change_with_the_step_and_with_nothing_else() -> None:
    method, batch = make(mlm=1.0), make_batch(2)
    torch.manual_seed(1)
    first = method.encode(batch)["masked"]
    torch.manual_seed(2)
    assert torch.equal(method.encode(batch)["masked"], first)
    method.after_step(0.1)
    second = method.encode(batch)["masked"]
    assert not torch.equal(second, first)
    resumed = make(mlm=1.0)
    resumed.load_state_dict(method.state_dict())
    assert torch.equal(resumed.encode(batch)["masked"], second)


def test_warm_up_learns_masked_words_alone() -> None:
    method, batch = make(warmup=0.5), make_batch(1)
    step = method(batch)
    torch.testing.assert_close(step.loss, step.log["word_perplexity"].log())
    assert step.candidates == 0
    step.loss.backward()
    assert all((p.grad == 0).all() for p in method.projector.parameters())
    method.after_step(0.5)
    step = method(batch)
    assert not step.log and step.candidates == B


def test_a_batch_without_a_masked_word_costs_nothing() -> None:
    method = make(mlm=1.0, mask_rate=0.0)
    step = method(make_batch(1))
    assert step.log["word_perplexity"] == 1
    step.loss.backward()


def test_bfloat16_autocast_and_equal_ids() -> None:
    method = make(mlm=0.1)
    for views in (1, 3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = method(make_batch(views)).loss
        loss.backward()
        assert loss.isfinite()
    encoded = make().encode(make_batch(1, ids=torch.zeros(B, dtype=torch.long)))
    assert make().contrast(encoded).loss == 0


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match=facts("Linear mlm warmup 0")):
        SimCSE(nn.Linear(3, 3), features=3, mlm=0.1)
    with pytest.raises(ValueError, match=facts("warmup 2")):
        make(warmup=2)
    with pytest.raises(ValueError, match=facts("mlm -1")):
        make(mlm=-1)
    with pytest.raises(ValueError, match=facts("tokenizer mask")):
        make(warmup=0.5, mask_token=None)
    assert make(mask_token=None).masked_words is None


SUBJECTS = ("a dog", "the old man", "my sister", "a small bird")
PLACES = ("in the garden", "near the river", "on the road", "at home")
VERBS = ("sleeps", "runs fast", "sings")
SENTENCES = [f"{s} {v} {p}" for s in SUBJECTS for v in VERBS for p in PLACES]  # 48


def trained(method: SimCSE, tokens: Tensor, steps: int, lr: float = 1e-3) -> list[dict[str, float]]:
    optimizer = torch.optim.Adam([p for p in method.parameters() if p.requires_grad], lr=lr)
    logs = []
    for step in range(steps):
        torch.manual_seed(step)
        chosen = torch.randperm(len(tokens))[:32]
        made = method(Batch([tokens[chosen]], chosen, chosen))
        optimizer.zero_grad()
        made.loss.backward()
        optimizer.step()
        method.after_step((step + 1) / steps)
        logs.append({"loss": made.loss.item()} | {key: value.item() for key, value in made.log.items()})
    return logs


def likeness(method: SimCSE, tokens: Tensor) -> Tensor:
    """The mean cosine of different sentences."""
    z = F.normalize(method.eval().embed(tokens))
    n = len(z)
    return ((z @ z.T).sum() - n) / (n * (n - 1))


def test_a_few_dozen_sentences_come_apart() -> None:
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=320, max_length=16)
    tokens = tokenizer.encode(SENTENCES)
    torch.manual_seed(0)
    encoder = TextEncoder(tokenizer.vocab_size, 16, width=32, layers=2, heads=2, dropout=0.1)
    method = SimCSE(encoder, features=32)
    before = likeness(method, tokens)
    logs = trained(method.train(), tokens, 60)
    after = likeness(method, tokens)
    assert logs[-1]["loss"] < 0.5 * logs[0]["loss"]
    assert before > 0.7 and after < 0.3


def test_perplexity_falls_below_that_of_words_without_context() -> None:
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=320, max_length=16)
    tokens = tokenizer.encode(SENTENCES)
    torch.manual_seed(0)
    encoder = TextEncoder(tokenizer.vocab_size, 16, width=32, layers=2, heads=2, dropout=0.02)
    method = SimCSE(
        encoder, features=32, warmup=1.0, mask_token=tokenizer.mask, special_tokens=tokenizer.special, mask_rate=0.3
    )
    logs = trained(method, tokens, 80, lr=3e-3)
    first, last = (sum(log["word_perplexity"] for log in part) / len(part) for part in (logs[:2], logs[-5:]))
    counts = torch.bincount(tokens[tokens > 3]).float()
    alone = torch.distributions.Categorical(counts).entropy().exp()
    assert first > 0.5 * tokenizer.vocab_size
    assert last < 0.6 * alone, f"{first:.1f} to {last:.1f}, {alone:.1f} by frequency"
