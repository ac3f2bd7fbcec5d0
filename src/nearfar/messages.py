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


MEANINGS = {  # words of a name that users bring from elsewhere: the words of names that stand for it here
    "lr": "learning rate",
    "tau": "temperature options",
    "bs": "batch size",
    "model": "backbone",
    "arch": "backbone",
    "network": "backbone",
    "img": "image",
    "imgsz": "image size",
    "resolution": "image size",
    "crop": "views scale local",
    "multicrop": "views local count",
    "crops": "views local count",
    "aug": "views preset",
    "augment": "views preset",
    "augmentation": "views preset",
    "augmentations": "views preset",
    "transform": "views preset",
    "transforms": "views preset",
    "jitter": "views color",
    "grayscale": "views color",
    "solarize": "views color preset",
    "blur": "views preset",
    "hflip": "views orientation",
    "flip": "views orientation",
    "rotate": "views orientation",
    "rotation": "views orientation",
    "gpus": "processes device",
    "gpu": "device processes",
    "cuda": "device",
    "cpu": "device",
    "devices": "processes device",
    "ddp": "processes strategy",
    "distributed": "processes nodes strategy",
    "world": "processes nodes",
    "amp": "precision",
    "fp16": "precision",
    "bf16": "precision",
    "half": "precision",
    "opt": "optimizer",
    "adam": "optimizer name",
    "sgd": "optimizer name",
    "wd": "weight decay",
    "scheduler": "schedule",
    "cosine": "schedule",
    "grad": "clip accumulate batches",
    "gradient": "clip accumulate batches",
    "accum": "accumulate batches",
    "accumulation": "accumulate batches",
    "duration": "time",
    "hours": "time",
    "minutes": "time",
    "iterations": "steps",
    "iters": "steps",
    "frozen": "freeze blocks adapt",
    "finetune": "adapt weights",
    "init": "weights pretrained",
    "load": "weights resume",
    "checkpoint": "resume weights",
    "ckpt": "resume weights checkpoint",
    "save": "out checkpoint",
    "output": "out",
    "outdir": "out",
    "input": "data",
    "dataset": "data",
    "csv": "data",
    "train": "data path",
    "val": "validation",
    "valid": "validation",
    "holdout": "held",
    "class": "label labels",
    "classes": "labels",
    "target": "labels label",
    "targets": "labels label",
    "col": "column",
    "threads": "workers",
    "random": "seed",
    "state": "seed",
    "log": "logger",
    "wandb": "logger",
    "mlflow": "logger",
    "trackio": "logger",
    "gradcache": "micro batch",
    "queue": "options",
    "hidden": "options",
    "projection": "options",
    "projector": "options",
    "proj": "options",
    "ema": "options momentum",
    "teacher": "options",
    "negatives": "negative options",
    "margin": "options",
    "multi": "count",
    "classifier": "protocol",
    "probe": "protocol",
    "task": "protocol",
    "metric": "protocol",
    "fmt": "format",
    "num": "n",
    "query": "image text like",
    "baseline": "against",
    "compare": "against",
    "neighbors": "k",
    "topk": "k",
}
_EMPTY = {
    "num",
    "n",
    "number",
    "of",
    "the",
    "max",
    "use",
    "no",
    "dir",
    "type",
    "enable",
}  # say nothing of what is meant
_LEAST_ALIKE = 0.45
_TYPED_WRONG = 0.72  # share of equal letters from which a name is taken for a misspelled one
_OF_BEST = 0.7  # of the score of the best, for those listed beside it


def nearest_by_meaning(word: str, known: Mapping[str, str], count: int = 3) -> str:
    """A hint at the names that most probably were meant: misspelled, or alike in their words or their help text.

    Args:
        word: what was typed.
        known: names, such as "optimizer.lr", each with its help text or "".
        count: names at most.

    >>> nearest_by_meaning("learning-rate", {"optimizer.lr": "peak learning rate", "epochs": "", "views": ""})
    "; did you mean 'optimizer.lr'?"
    >>> nearest_by_meaning("gpu", {"device": "", "epochs": ""})
    "; did you mean 'device'?"
    """
    typed = word[:80].lower()
    asked = _words(typed) - _EMPTY or _words(typed)
    meanings = {each: set(_stands_for(each).split()) - {each} for each in asked}

    def score(name: str) -> float:
        last = name.rsplit(".", 1)[-1].lower()
        letters = max(SequenceMatcher(None, typed, each).ratio() for each in (last, name.lower()))
        words, helped = _words(last), _words(known[name])
        above = _words(name) - words
        hits = [_hit(each, meanings[each], words, above, helped) for each in asked]
        foreign = len(words) / (len(words) + len(hits)) / 100  # of equal hits the shortest name
        return max(letters if letters >= _TYPED_WRONG else 0.0, sum(hits) / max(1, len(hits)) - foreign)

    scores = sorted(((score(name), name) for name in known), key=lambda each: (-each[0], each[1]))
    close = [name for each, name in scores[:count] if each >= max(_LEAST_ALIKE, _OF_BEST * scores[0][0])]
    listed = " or ".join(filter(None, [", ".join(map(repr, close[:-1])), *map(repr, close[-1:])]))
    return f"; did you mean {listed}?" if close else ""


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower().replace("_", " ")))


def _stands_for(word: str) -> str:
    """The words that stand for a word, which may be misspelled."""
    close = get_close_matches(word, MEANINGS, n=1, cutoff=0.85)
    return MEANINGS[close[0]] if close else ""


def _hit(word: str, meant: set[str], words: set[str], above: set[str], helped: set[str]) -> float:
    """How well a word fits a name of such words, in sections of such words, with such a help text."""
    if word in words or get_close_matches(word, words, n=1, cutoff=0.8):
        return 1.0
    if meant & words:
        return 0.7 + 0.3 * len(meant & (words | above)) / len(meant)
    if word in above or (meant and meant <= helped):
        return 0.6
    return 0.5 if word in helped and len(word) > 2 else 0.0


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
