import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nearfar.modalities.text.encoders import text_encoder
from nearfar.nn.text import (
    PADDING,
    PRESETS,
    TextEncoder,
    by_length,
    length_groups,
    longest_text,
    pool_tokens,
    trim_padding,
)
from tests.support.facts import facts

WORDS, LENGTH = 50, 12


def encoder(**options: object) -> TextEncoder:
    torch.manual_seed(0)
    return TextEncoder(WORDS, LENGTH, width=16, layers=2, heads=4, **options).eval()  # type: ignore[arg-type]


def bert(folder: Path, *, padding: int = 0, kind: str = "bert") -> str:
    """A tiny model of random weights, saved as the hub's are."""
    from nearfar import _torchvision  # noqa: F401

    from transformers import AutoConfig, AutoModel  # isort: skip

    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind,
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
        pad_token_id=padding,
    )
    model = AutoModel.from_config(config)
    for parameter in model.parameters():  # as published, tiny weights would hide a wrong mask
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return f"transformers:{folder}"


def sentence(words: int, seed: int = 0) -> Tensor:
    return torch.randint(4, WORDS, (1, words), generator=torch.Generator().manual_seed(seed))


def padded(tokens: Tensor, length: int) -> Tensor:
    return nn.functional.pad(tokens, (0, length - tokens.shape[1]), value=PADDING)


def assert_padding_changes_nothing(network: nn.Module) -> None:
    sentences = [sentence(words, seed) for seed, words in enumerate((1, 3, 7, LENGTH))]
    batch = torch.cat([padded(s, LENGTH) for s in sentences])
    together = network(batch)
    for i, alone in enumerate(sentences):
        h = network(alone)
        torch.testing.assert_close(together[i : i + 1], h, rtol=0, atol=1e-6)
        for length in range(alone.shape[1], LENGTH + 1):
            torch.testing.assert_close(network(padded(alone, length)), h, rtol=0, atol=1e-6)
        pair = torch.cat([padded(alone, LENGTH), sentence(LENGTH, 9)])
        torch.testing.assert_close(network(pair)[:1], h, rtol=0, atol=1e-6)
    assert (together[1] - together[2]).abs().max() > 0.01


@pytest.mark.parametrize(
    ("pooling", "causal"), [("cls", False), ("mean", False), ("last", False), ("mean", True), ("last", True)]
)
def test_padding_changes_nothing(pooling: str, causal: bool) -> None:
    assert_padding_changes_nothing(encoder(pooling=pooling, causal=causal))


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
@pytest.mark.parametrize(("kind", "padding"), [("bert", 0), ("roberta", 1)])
def test_padding_changes_nothing_in_a_model_of_transformers(
    tmp_path: Path, kind: str, padding: int, pooling: str
) -> None:
    name = bert(tmp_path, kind=kind, padding=padding)
    network = text_encoder(name, vocab_size=WORDS, max_length=LENGTH, pooling=pooling, pretrained=True)  # type: ignore[arg-type]
    assert network.num_features == 16
    assert_padding_changes_nothing(network.eval())
    assert network(torch.zeros(2, 4, dtype=torch.long)).isfinite().all()


def test_a_model_of_transformers_is_itself(tmp_path: Path) -> None:
    from transformers import AutoModel

    name = bert(tmp_path, kind="roberta", padding=1)
    network = text_encoder(name, vocab_size=WORDS, max_length=LENGTH, pooling="cls", pretrained=True)
    original = AutoModel.from_pretrained(tmp_path).eval()
    ours, its_own = torch.tensor([[1, 7, 8, 9]]), torch.tensor([[0, 7, 8, 9]])  # 0 and 1 are exchanged
    expected = original(input_ids=its_own).last_hidden_state[:, 0]
    torch.testing.assert_close(network.eval()(ours), expected)

    places = [value.data_ptr() for value in network.state_dict().values()]
    assert len(set(places)) == len(places)  # safetensors stores no tensor under two names
    assert network.token_embedding.weight.shape == (WORDS, 16)

    network.train()(ours).sum().backward()
    assert all(p.grad is not None for p in network.parameters())
    assert not torch.equal(network(ours), network(ours))  # its own dropout
    quiet = text_encoder(name, vocab_size=WORDS, max_length=LENGTH, dropout=0.0, pretrained=True)
    assert torch.equal(quiet(ours), quiet(ours))
    drawn = text_encoder(name, vocab_size=WORDS, max_length=LENGTH, pooling="cls").eval()
    assert not torch.allclose(drawn(ours), expected)


def test_what_cannot_be_loaded_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    name = bert(tmp_path / "bert")
    (tmp_path / "empty").mkdir()
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_bytes((tmp_path / "bert" / "config.json").read_bytes())
    torch.save({}, tmp_path / "pickled" / "pytorch_model.bin")
    for source, options, told in (
        ("transformers:no-one/nothing", {}, "Hugging Face hub network"),
        (f"transformers:{tmp_path / 'empty'}", {}, "config.json"),
        (f"transformers:{tmp_path / 'pickled'}", {}, "model.safetensors"),
        (name, {"vocab_size": 51}, "knows 50 tokens"),
        (name, {"max_length": 21}, "20 tokens"),
        (name, {"causal": True}, "causal"),
        ("text-tini", {}, "'text-tiny'"),
        ("text-tiny", {}, "weights 'text-tiny'"),
    ):
        with pytest.raises(ValueError, match=facts(told)) as error:
            text_encoder(source, **({"vocab_size": WORDS, "max_length": LENGTH, "pretrained": True} | options))  # type: ignore[arg-type]
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_by_name(name: str) -> None:
    network = text_encoder(name, vocab_size=WORDS, max_length=LENGTH, dropout=0.1)
    tokens = torch.cat([sentence(5), sentence(5, 1)])
    assert network(tokens).shape == (2, network.num_features)
    assert not torch.equal(network(tokens), network(tokens))
    if name != "text-base":
        network(tokens).square().sum().backward()
        assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_nothing_but_padding_gives_finite_features_and_gradients(pooling: str) -> None:
    network = encoder(pooling=pooling)
    h = network(torch.zeros(3, 6, dtype=torch.long))
    h.square().sum().backward()
    assert h.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def test_pooling_takes_what_it_says() -> None:
    states = torch.randn(2, 4, 3)
    tokens = torch.tensor([[5, 6, 7, 0], [5, 0, 0, 0]])
    assert torch.equal(pool_tokens(states, tokens, "cls"), states[:, 0])
    torch.testing.assert_close(pool_tokens(states, tokens, "mean"), torch.stack([states[0, :3].mean(0), states[1, 0]]))
    assert torch.equal(pool_tokens(states, tokens, "last"), torch.stack([states[0, 2], states[1, 0]]))


def test_the_order_of_words_counts() -> None:
    tokens = sentence(6)
    assert not torch.allclose(encoder()(tokens), encoder()(tokens.flip(1)))


def test_attention_of_a_text_is_on_the_text() -> None:
    tokens = padded(sentence(4), 6)
    weights = encoder().attention(tokens)
    assert weights.shape == (1, 2, 4, 6, 6)
    assert (weights[..., 4:] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 4, 6))


def mixed(rows: int = 40, seed: int = 0) -> Tensor:
    """Texts of many lengths, one of none."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, WORDS, (rows, LENGTH), generator=generator)
    lengths = torch.randint(1, LENGTH + 1, (rows, 1), generator=generator)
    lengths[3] = 0
    return tokens.masked_fill(torch.arange(LENGTH) >= lengths, PADDING)


def test_groups_by_length_give_the_same_features_and_gradients_for_less_work() -> None:
    network, tokens = encoder().double(), mixed()
    seen: list[Tensor] = []

    def encode(part: Tensor) -> Tensor:
        seen.append(part)
        return pool_tokens(network.states(part), part, "mean")

    whole, grouped = encode(tokens), by_length(encode, tokens, least=48)
    torch.testing.assert_close(grouped, whole, rtol=1e-10, atol=1e-12)
    parts = seen[1:]
    assert len(parts) > 2 and sum(map(len, parts)) == len(tokens)
    assert sum(part.numel() for part in parts) < 0.75 * tokens.numel()
    assert all(int(part.ne(PADDING).sum(1).max()) == part.shape[1] for part in parts)
    weights = torch.randn(whole.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    some = list(network.parameters())[:4]
    found, expected = (torch.autograd.grad((x * weights).sum(), some) for x in (grouped, whole))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_training_on_an_accelerator_cuts_only_padding_that_is_known() -> None:
    network, tokens = encoder().to("meta"), mixed().to("meta")
    assert trim_padding(tokens).shape == tokens.shape == by_length(lambda part: part, tokens, least=1).shape
    with longest_text(5):
        assert trim_padding(tokens).shape == (len(tokens), 5)
        assert network(tokens).shape == (len(tokens), network.num_features)
    assert trim_padding(tokens).shape == tokens.shape
    with torch.no_grad(), pytest.raises(NotImplementedError):  # where nothing is trained, work is saved
        network(tokens)


def test_groups_are_of_similar_length_and_large_enough() -> None:
    lengths = torch.tensor([5] * 30 + [20] * 10 + [19, 16, 15] * 5)
    group = length_groups(lengths, least=100)
    assert group.tolist() == [1, 1] + [2] * 28 + [0] * 10 + [0, 0, 1] * 5  # two short ones fill the second
    for number in range(int(group.max()) + 1):
        inside = lengths[group == number]
        assert int(inside.max()) * len(inside) >= 100
    assert length_groups(lengths, least=10**6).tolist() == [0] * len(lengths)
    assert length_groups(torch.tensor([7]), least=1).tolist() == [0]


def test_a_traced_graph_reads_what_its_example_had_no_text_for() -> None:
    network = encoder(pooling="last")
    traced = torch.jit.trace(network, padded(sentence(3), LENGTH))
    tokens = sentence(LENGTH, 4)
    torch.testing.assert_close(traced(tokens), network(tokens))
    exported = torch.export.export(network, (padded(sentence(3), LENGTH),)).module()
    torch.testing.assert_close(exported(tokens), network(tokens))


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        (torch.zeros(2, 3), "integers"),
        (["a text"], "tokens list"),
        (torch.ones(3, dtype=torch.long), "(B, L) 1 12"),
        (torch.ones(2, 13, dtype=torch.long), "tokenizer 12"),
        (torch.full((2, 3), 50), "tokens 50 0 49"),
        (torch.full((2, 3), -1), "tokenizer encoder"),
    ],
)
def test_tokens_that_are_none_are_told(tokens: Tensor, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=facts(told)):
        encoder().states(tokens)


def test_a_first_token_that_sees_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=facts("'last'")):
        encoder(pooling="cls", causal=True)
    with pytest.raises(ValueError, match=facts("pooling 'max'")):
        encoder(pooling="max")


def test_nothing_is_imported_before_it_is_needed() -> None:
    program = "import sys, nearfar.nn; print({'transformers', 'tokenizers', 'timm'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "set()"
