"""Short texts for error messages: hints at misspelled names, long values cut, errors in one line. Needs no torch."""

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches


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


MEANINGS = {  # words of a name that users bring from elsewhere: the words that stand for it here
    "lr": "learning rate",
    "tau": "temperature",
    "bs": "batch size",
    "model": "backbone",
    "arch": "backbone",
    "network": "backbone",
    "img": "image",
    "resolution": "image size",
    "crop": "views",
    "augment": "views",
    "augmentation": "views",
    "transforms": "views",
    "gpus": "processes device",
    "gpu": "device",
    "devices": "processes device",
    "amp": "precision",
    "fp16": "precision",
    "wd": "weight decay",
    "duration": "time",
    "iterations": "steps",
    "iters": "steps",
    "output": "out",
    "input": "data path",
    "dataset": "data path",
    "classes": "labels",
    "checkpoint": "resume weights",
    "threads": "workers",
}


def nearest_by_meaning(word: str, known: Mapping[str, str], count: int = 3) -> str:
    """A hint at the names that most probably were meant: alike in letters, in their words or in their help text.

    Args:
        word: what was typed.
        known: names, such as "optimizer.lr", each with its help text or "".
        count: names at most.

    >>> nearest_by_meaning("learning-rate", {"optimizer.lr": "peak learning rate", "epochs": "", "views": ""})
    "; did you mean 'optimizer.lr'?"
    """
    typed = word[:80].lower()
    asked = set(re.findall(r"[a-z0-9]+", typed.replace("_", " ")))
    asked |= {each for one in tuple(asked) for each in get_close_matches(one, MEANINGS, n=1, cutoff=0.8)}
    asked |= {part for one in tuple(asked) for part in MEANINGS.get(one, "").split()}

    def score(name: str) -> float:
        last = name.rsplit(".", 1)[-1].lower()
        letters = max(SequenceMatcher(None, typed, each).ratio() for each in (last, name.lower()))
        words = set(re.findall(r"[a-z0-9]+", name.lower().replace("_", " ")))
        helped = set(re.findall(r"[a-z0-9]+", known[name].lower()))
        return letters + (len(asked & words) + 0.5 * len(asked & (helped - words))) / len(asked or {""})

    scores = sorted(((score(name), name) for name in known), key=lambda each: (-each[0], each[1]))
    if not scores or scores[0][0] < _LEAST_ALIKE:
        return ""
    close = [name for each, name in scores[:count] if each >= max(_LEAST_ALIKE, _OF_BEST * scores[0][0])]
    listed = " or ".join(filter(None, [", ".join(map(repr, close[:-1])), repr(close[-1])]))
    return f"; did you mean {listed}?"


_LEAST_ALIKE = 0.6
_OF_BEST = 0.7  # of the score of the best, for those listed beside it


def shorten(text: str, limit: int) -> str:
    """
    >>> shorten("a long text", 6)
    'a lon…'
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def shorten_path(path: str, limit: int) -> str:
    """A path cut in its middle: the name of the file stays, and as much of the first folders as there is room for.

    >>> shorten_path("photos/2019/summer/italy/IMG_2841.jpg", 28), shorten_path("a/b.png", 28)
    ('photos/2019/su…/IMG_2841.jpg', 'a/b.png')
    >>> shorten_path("a_name_that_is_longer_than_the_column.png", 16)
    'a_name_…lumn.png'
    """
    if len(path) <= limit:
        return path
    end = path[path.rfind("/") :] if "/" in path else ""
    if not end or len(end) > limit - 2:
        end = path[-(limit // 2) :]
    return f"{path[: limit - 1 - len(end)]}…{end}"


def shown(value: object, limit: int = 60) -> str:
    """A value as an error message shows it: on one line, and not too long."""
    return shorten(" ".join(repr(value).split()), limit)


def one_line(error: BaseException, limit: int = 200) -> str:
    """The message of an error on one line; its type where it has no message."""
    return shorten(" ".join(str(error).split()), limit) or type(error).__name__
