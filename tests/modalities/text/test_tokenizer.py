"""Texts to tokens and back, whatever the script."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nearfar.modalities.text import tokenizer as tokens
from nearfar.modalities.text.tokenizer import Tokenizer
from nearfar.nn import text as encoders
from tests.support.facts import facts

TEXTS = ["a red car on a road", "a blue car in the rain", "two dogs run over a green field", "the rain on the road"]
HARD = [
    "",
    " leading, trailing and  double spaces ",
    "שלום עולם",  # right to left
    "مرحبا بالعالم",
    "a \u202eright-to-left override\u202c",
    "今日はいい天気ですね。你好，世界",
    "👩‍👩‍👧‍👦 🇸🇪 👍🏽",
    "e\u0301 is not \u00e9, and Z\u0351\u036b\u0343 is Zalgo's",
    "tab\tnewline\r\nbell\x07 nul\x00 escape\x1b[31m",
    "⟨pad⟩ ⟨end⟩ [SEP] </s> <|endoftext|>",
    "ﬁ ligature, Ⅷ, ½, \ufeffbyte order mark, \U0010fffd",
]


@pytest.fixture(scope="module")
def own() -> Tokenizer:
    return Tokenizer.train(TEXTS * 3, vocab_size=300, max_length=200)


def hugging_face(folder: Path, names: list[str], *, stated: bool = False) -> Path:
    """A tokenizer of words as Hugging Face saves one; `names` are the first ids."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    words = [*names, *sorted({word for text in TEXTS for word in text.split()})]
    start, end = names[0] if "s" in names[0] else "[CLS]", next(n for n in names if n in ("[SEP]", "</s>"))
    made = tokenizers.Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=names[-1]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(names)
    made.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(n, words.index(n)) for n in (start, end)]
    )
    if stated:
        made.enable_truncation(7)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("text", HARD)
def test_every_script_round_trips(own: Tokenizer, text: str) -> None:
    ids = own.encode([text])
    assert own.decode(ids) == [text]
    assert ids[0, 0] == tokens.START and ids[0, -1] == tokens.END
    assert not set(ids[0, 1:-1].tolist()) & set(own.special)  # what is spelled like a special token is text


def test_a_batch_is_padded_with_zeros(own: Tokenizer) -> None:
    ids = own.encode(HARD)
    assert ids.dtype == torch.int64 and ids.shape[0] == len(HARD) and ids.shape[1] <= 200
    assert own.decode(ids) == HARD
    for row, text in zip(ids, HARD, strict=True):
        real = own.encode([text])[0]
        assert torch.equal(row[: len(real)], real) and (row[len(real) :] == 0).all()
    assert own.encode([]).shape == (0, 1)
    assert own.truncated == 0


def test_padding_is_what_the_encoder_takes_for_it() -> None:
    assert tokens.PADDING == encoders.PADDING == 0


def test_long_texts_are_cut_counted_and_still_end() -> None:
    short = Tokenizer.train(TEXTS, vocab_size=260, max_length=6)
    ids = short.encode(["abcd", "abcde", "a longer text", ""])
    assert ids.shape == (4, 6)
    assert short.truncated == 2
    assert ids[:3, -1].tolist() == [tokens.END] * 3
    assert short.decode(ids) == ["abcd", "abcd", "a lo", ""]


def test_half_a_surrogate_pair_becomes_a_question_mark(own: Tokenizer) -> None:
    assert own.decode(own.encode(["a\ud83d b"])) == ["a? b"]


def test_the_same_texts_give_the_same_tokenizer() -> None:
    program = (
        "import sys; from nearfar.modalities.text.tokenizer import Tokenizer; from pathlib import Path\n"
        f"print(Tokenizer.train({TEXTS!r} * 3, vocab_size=290)._backend.to_str())"
    )
    made = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout for _ in range(2)]
    here = Tokenizer.train(iter(TEXTS * 3), vocab_size=290)._backend.to_str()
    assert made[0] == made[1] == here + "\n"
    assert Tokenizer.train(reversed(TEXTS * 3), vocab_size=290)._backend.to_str() == here


def test_frequent_words_become_pieces(own: Tokenizer) -> None:
    assert own.vocab_size == 300
    assert (own.start, own.end, own.mask, own.special) == (1, 2, 3, (0, 1, 2, 3))
    assert own.encode(["the rain on the road"]).shape[1] < len("the rain on the road") / 2


def test_it_survives_a_run_folder(own: Tokenizer, tmp_path: Path) -> None:
    file = own.save(tmp_path / "run")
    assert file == tmp_path / "run" / "tokenizer.json" and isinstance(json.loads(file.read_text()), dict)
    for source in (file, tmp_path / "run", str(tmp_path / "run")):
        loaded = Tokenizer.load(source)
        assert repr(loaded) == repr(own) == "Tokenizer(vocab_size=300, max_length=200)"
        assert torch.equal(loaded.encode(HARD), own.encode(HARD))
        assert loaded.decode(loaded.encode(HARD)) == HARD
    assert Tokenizer.load(file, max_length=5).encode(HARD).shape[1] == 5


def test_a_tokenizer_like_berts(tmp_path: Path) -> None:
    names = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
    bert = Tokenizer.load(hugging_face(tmp_path, names, stated=True))
    assert bert.max_length == 7
    assert (bert.start, bert.end, bert.mask, bert.special) == (1, 2, 3, (0, 1, 2, 3, 4))
    ids = bert.encode(["a red car", "two dogs run over a green field"])
    assert ids[0, [0, 4, 5]].tolist() == [1, 2, 0] and ids.shape == (2, 7)
    assert bert.truncated == 1
    assert bert.decode(ids) == ["a red car", "two dogs run over a"]


def test_what_is_named_as_special_is_special(tmp_path: Path) -> None:
    """Also where the file does not say so."""
    names = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
    file = hugging_face(tmp_path, names) / "tokenizer.json"
    stated = json.loads(file.read_text())
    for token in stated["added_tokens"]:
        token["special"] = token["content"] == "[UNK]"
    file.write_text(json.dumps(stated))
    assert Tokenizer.load(file).special == (0, 1, 2, 3, 4)


def test_padding_of_another_id_is_exchanged_with_zero(tmp_path: Path) -> None:
    names = ["<s>", "<pad>", "</s>", "<mask>", "<unk>"]  # RoBERTa's order
    roberta = Tokenizer.load(hugging_face(tmp_path, names))
    assert (roberta.start, roberta.end, roberta.mask, roberta.special) == (1, 2, 3, (0, 1, 2, 3, 4))
    ids = roberta.encode(["a red car", "rain"])
    assert ids[:, 0].tolist() == [1, 1] and ids[1, 2:].tolist() == [2, 0, 0]
    assert roberta.decode(ids) == ["a red car", "rain"]
    roberta.save(tmp_path / "again")
    assert torch.equal(Tokenizer.load(tmp_path / "again").encode(["a red car", "rain"]), ids)


def test_what_cannot_be_loaded_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "pickled.json").write_bytes(pickle.dumps({"a": 1}))
    hugging_face(tmp_path / "no-padding", ["[CLS]", "[SEP]", "[UNK]"])
    for source, told in (
        ("no-one/nothing", "Hugging Face hub"),
        ("no/such/folder at all", "fetch"),
        (tmp_path / "empty", "tokenizer.json"),
        (tmp_path / "broken.json", "tokenizer"),
        (tmp_path / "pickled.json", "tokenizer"),
        (tmp_path / "no-padding", "padding"),
    ):
        with pytest.raises((OSError, ValueError), match=facts(told)) as error:
            Tokenizer.load(source)
        assert "\n" not in str(error.value)


def test_mistakes_are_told(own: Tokenizer) -> None:
    with pytest.raises(ValueError, match=facts("vocab_size 100 260")):
        Tokenizer.train(TEXTS, vocab_size=100)
    with pytest.raises(ValueError, match=facts("max_length 2 3")):
        Tokenizer.train(TEXTS, max_length=2)
    with pytest.raises(TypeError, match=facts("text 1 None")):
        own.encode(["a", None])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=facts("text 2 nan")):
        Tokenizer.train(["a", "b", float("nan")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=facts("encode([text])")):
        own.encode("a text")
    with pytest.raises(ValueError, match=facts("(N, L)")):
        own.decode(torch.zeros(3, dtype=torch.long))


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=facts("'nearfar[text]'")):
        Tokenizer.train(TEXTS)


def test_the_package_is_imported_when_it_is_needed() -> None:
    program = (
        "import sys, nearfar.modalities.text.modality\n"
        "print({'tokenizers', 'transformers', 'huggingface_hub'} & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "set()"
