"""A tokenizer of a stranger: patterns that match exponentially, replacements that grow, links to devices."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")

from nearfar.modalities.text.tokenizer import Tokenizer
from tests.support.facts import facts


def changed(folder: Path, **parts: Any) -> Path:
    Tokenizer.train(["a dog runs", "the cat sleeps"], vocab_size=300, max_length=16).save(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**content, **parts}))
    return folder / "tokenizer.json"


def test_a_pattern_of_exponential_time_is_a_line(tmp_path: Path) -> None:
    """The library panics, by an exception that no `except Exception` catches: a thread of the explorer ended by it."""
    file = changed(tmp_path, normalizer={"type": "Replace", "pattern": {"Regex": "((a+)+)+$"}, "content": " "})
    with pytest.raises(ValueError, match=facts("tokenizer tokenizer.json")):
        Tokenizer.load(file).encode(["a" * 2000 + "!"])


def test_replacements_that_grow_a_text_without_end(tmp_path: Path) -> None:
    grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    with pytest.raises(ValueError, match=facts("1,000,000,000,000,000,000 times")):
        Tokenizer.load(changed(tmp_path, normalizer={"type": "Sequence", "normalizers": [grow] * 6}))
    usual = [{"type": "NFKC"}, {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "Lowercase"}]
    Tokenizer.load(changed(tmp_path, normalizer={"type": "Sequence", "normalizers": usual})).encode(["A dog"])


def test_a_tokenizer_that_is_a_device(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").symlink_to("/dev/zero")
    with pytest.raises(FileNotFoundError, match=facts("tokenizer.json")):
        Tokenizer.load(tmp_path)
