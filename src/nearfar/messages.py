"""Short texts for error messages: hints at misspelled names, long values cut, errors in one line. Needs no torch."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known name that was probably meant; empty where none is close.

    >>> nearest("Yelow", ["yellow", "blue"]), nearest("xyz", ["yellow", "blue"])
    ("; did you mean 'yellow'?", '')
    """
    names = {name.lower(): name for name in known}
    close = get_close_matches(word[:80].lower(), list(names), n=1, cutoff=0.5)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def nearest_or_all(word: str, known: Iterable[str]) -> str:
    """The same hint, or all known names where none is close."""
    names = sorted(known)
    return nearest(word, names) or f"; known are {', '.join(names)}"


def shorten(text: str, limit: int) -> str:
    """
    >>> shorten("a long text", 6)
    'a lon…'
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def shown(value: object, limit: int = 60) -> str:
    """A value as an error message shows it: on one line, and not too long."""
    return shorten(" ".join(repr(value).split()), limit)


def one_line(error: BaseException, limit: int = 200) -> str:
    """The message of an error on one line; its type where it has no message."""
    return shorten(" ".join(str(error).split()), limit) or type(error).__name__
