"""What a message must say, as facts: tests pin the flag, the key and the value seen, never the sentence around them."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

_FACT = re.compile(r"'[^']*'|\([^()]*\)|\[[^\[\]]*\]|\S+")  # what is quoted or in brackets is one fact, spaces included


def facts(words: str) -> str:
    """A pattern for `pytest.raises(match=...)`: the message has each of these facts, in any order and case.

    Facts are separated by spaces: `facts("temperature -1")`, `facts("--k 0")`, `facts("z (2, 3)")`. A number or a word
    of up to two letters is not found inside a longer one.
    """
    return "(?is)" + "".join(rf"(?=.*{_pattern(fact)})" for fact in _FACT.findall(words))


def tells(text: object, words: str) -> bool:
    """Whether a line of a text, or two that follow each other, has all of these facts, in any order and case."""
    lines = str(text).splitlines() or [""]
    pairs = [" ".join(two) for two in zip(lines, [*lines[1:], ""], strict=True)]
    return any(re.match(facts(words), pair) for pair in pairs)


def all_tell(texts: Iterable[object], words: Sequence[str]) -> bool:
    """Whether there are as many texts as facts, and each text has its own."""
    texts = list(texts)
    return len(texts) == len(words) and all(map(tells, texts, words))


def _pattern(fact: str) -> str:
    before = r"(?<!\d)(?<!\d[.,])" if fact[0].isdigit() else ""
    after = r"(?!\d|,\d|\.\d*[1-9])" if fact[-1].isdigit() else ""
    if fact.isalpha() and len(fact) <= 2:
        before, after = r"(?<![^\W_])", r"(?![^\W_])"
    return before + re.escape(fact) + after


def lists(skipped: Iterable[Any], expected: Sequence[tuple[str, str]]) -> bool:
    """Whether these samples were left out, in this order: the path of each, and facts of the reason."""
    skipped = list(skipped)
    return [each.path for each in skipped] == [path for path, _ in expected] and all_tell(
        (each.reason for each in skipped), [words for _, words in expected]
    )
