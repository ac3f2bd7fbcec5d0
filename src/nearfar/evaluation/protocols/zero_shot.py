"""Zero-shot classification: sentences with the names of the classes are the classifier."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nearfar.data.dataset import counted
from nearfar.evaluation.classification import STYLES, classification, probabilities
from nearfar.evaluation.knn import check_classes
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import NO_TEXTS, EmbedTexts, Outcome, Task
from nearfar.losses.arguments import check_compatible, check_positive, check_rows, l2_normalize
from nearfar.settings import setting

# General ones; sentences from the data's own captions are better.
TEMPLATES = ("a photo of a {}.", "a picture of a {}.", "an image of a {}.", "a {}.", "{}")
SLOT = "{}"  # where the name goes
MOST_TEMPLATES = 256  # that are taken from captions,
MOST_SENTENCES = 1 << 15  # if they do not make more with the names than this
LARGEST_FILE = 1 << 20  # bytes of a file of templates


@dataclass(frozen=True)
class ZeroShotSettings:
    """Protocol zero_shot: the names of the classes as the classifier."""

    templates: str | None = setting(
        None, "a file of sentences, or one sentence, with {} for the class name; None: sentences of the captions"
    )


def by_class_names(task: Task, settings: ZeroShotSettings, seed: int) -> Outcome:
    """Zero-shot classification of the test samples: no training image is used, but sentences of their captions are."""
    names = task.train.data.classes
    if names is None:
        raise ValueError("the classes have no names, which zero-shot classification reads")
    if task.embedder.embed_texts is None:
        raise ValueError(NO_TEXTS)
    templates: str | Sequence[str] | None = settings.templates
    captions = task.train.captions
    if templates is None and captions is not None:
        templates = templates_from((text for several in captions for text in several), names) or None
    weights = class_weights(task.embedder.embed_texts, names, templates, batch_size=task.compute.batch_size)
    outcome = zero_shot(
        task.test_features,
        task.test.labels,
        weights,
        logit_scale=task.embedder.logit_scale,
        count=task.bootstrap,
        seed=seed,
    )
    used = read_templates(templates)
    whose = " of the training captions" if isinstance(templates, tuple) else ""
    outcome.notes.append(
        f"zero-shot: {counted(len(used), 'sentence')}{whose}, such as {used[0]!r}; chance is {1 / len(names):.1%}"
    )
    return outcome


def read_templates(given: str | Path | Sequence[str] | None = None) -> tuple[str, ...]:
    """Templates as they are given: a list, a text file with one to a line ('#' begins a comment), one text with {},
    or None for `TEMPLATES`.

    >>> read_templates("a letter {}")
    ('a letter {}',)
    """
    if given is None:
        return TEMPLATES
    if isinstance(given, str) and SLOT in given:
        given = [given]
    source = "templates"
    if isinstance(given, str | Path):
        source = str(given)
        given = _lines(Path(given).expanduser())
    templates = tuple(dict.fromkeys(given))
    if not templates:
        raise ValueError(f"{source} has no template, expected at least one such as 'a photo of a {SLOT}.'")
    for template in templates:
        if SLOT not in template:
            raise ValueError(f"{source}: {template[:60]!r} has no {SLOT}, expected it where the class name goes")
    return templates


def templates_from(captions: Iterable[str], classes: Sequence[str]) -> tuple[str, ...]:
    """The sentences that captions put the classes' names into, the usual ones first; none where no name occurs.

    A name counts as a word of its own; of several that begin at one place the longest is taken out.

    >>> templates_from(["a red letter K on blue", "a red letter B on blue", "a blue dot"], ["B", "K"])
    ('a red letter {} on blue',)
    """
    names = sorted((" ".join(name.replace("_", " ").split()) for name in classes), key=len, reverse=True)
    words = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, filter(None, names)))})(?!\w)") if any(names) else None
    found: Counter[str] = Counter()
    for caption in captions:
        if words is not None and SLOT not in caption and (match := words.search(caption)):
            found[f"{caption[: match.start()]}{SLOT}{caption[match.end() :]}"] += 1
    most = min(MOST_TEMPLATES, max(1, MOST_SENTENCES // max(1, len(classes))))
    return tuple(template for template, _ in found.most_common(most))


def prompts(classes: Sequence[str], templates: str | Path | Sequence[str] | None = None) -> list[list[str]]:
    """The sentences of each class, one for each template; underscores of names, as folders have them, are spaces.

    >>> prompts(["sea_lion"], ["a photo of a {}.", "a drawing of a {}."])
    [['a photo of a sea lion.', 'a drawing of a sea lion.']]
    """
    texts = read_templates(templates)
    names = [" ".join(name.replace("_", " ").split()) for name in classes]
    if not names or not all(names):
        raise ValueError(f"classes is {list(classes)!r}, expected names of at least one letter each")
    return [[template.replace(SLOT, name) for template in texts] for name in names]


@torch.no_grad()
def class_weights(
    embed_texts: EmbedTexts,
    classes: Sequence[str],
    templates: str | Path | Sequence[str] | None = None,
    *,
    batch_size: int = 256,
) -> Tensor:
    """One direction for each class: the mean of the unit embeddings of its sentences, of length one again.

    Args:
        embed_texts: a list of B texts to (B, D); normalised here.
        classes: C names.
        templates: as `read_templates` takes them.
        batch_size: texts at a time.

    Returns:
        (C, D), rows of length one, on the CPU.

    Reference: Radford et al. 2021 (CLIP), section 3.1.4, https://arxiv.org/abs/2103.00020

    >>> letters = lambda texts: torch.tensor([[float(t.count("a")), float(t.count("b"))] for t in texts])
    >>> class_weights(letters, ["a", "b"], ["{}", "{}{}"]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, expected at least 1")
    sentences = prompts(classes, templates)
    flat = [text for texts in sentences for text in texts]
    found = []
    for start in range(0, len(flat), batch_size):
        part = flat[start : start + batch_size]
        z = embed_texts(part)
        if z.ndim != 2 or len(z) != len(part):
            raise ValueError(f"the text encoder returns shape {tuple(z.shape)} for {len(part)} texts, expected (B, D)")
        found.append(l2_normalize(z).cpu())
    return l2_normalize(torch.cat(found).unflatten(0, (len(sentences), -1)).mean(1))  # (C, T, D) to (C, D)


@torch.no_grad()
def zero_shot_scores(images: Tensor, weights: Tensor, *, logit_scale: float) -> Tensor:
    """(N, C) probabilities of the classes: softmax of logit_scale · cosine.

    Args:
        images: (N, D) embeddings; normalised here.
        weights: (C, D) of `class_weights`.
        logit_scale: multiplies the cosines; the model's own, 100 for most published ones. The order of the classes
            does not depend on it, calibration does.
    """
    check_rows("images", images)
    check_rows("weights", weights)
    check_compatible("images", images, "weights", weights, features_only=True)
    check_positive("logit_scale", logit_scale)
    return probabilities(logit_scale * l2_normalize(images) @ l2_normalize(weights).T)


def zero_shot(
    images: Tensor, labels: Tensor, weights: Tensor, *, logit_scale: float, count: int = 200, seed: int = 0
) -> Outcome:
    """All metrics of `classification` for the zero-shot classifier: nothing is fitted, no training image is used.

    Args:
        images: (N, D) embeddings of the test images.
        labels: (N,) integers from 0 to C - 1.
        weights, logit_scale: see `zero_shot_scores`.
        count, seed: of the bootstrap's resamples.

    >>> zero_shot(torch.eye(3), torch.arange(3), torch.eye(3), logit_scale=100.0, count=20).metrics["accuracy"].value
    1.0
    """
    scores = zero_shot_scores(images, weights, logit_scale=logit_scale)  # (N, C)
    check_classes(labels, images, len(weights))
    return classification(scores, labels, classes=len(weights), count=count, seed=seed)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {str(path)!r} of templates, and as a template it lacks {SLOT}, the class name's place"
        )
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"it has {path.stat().st_size:,} bytes")
        lines = path.read_text(encoding="utf-8").splitlines()
    except ValueError as error:
        raise ValueError(
            f"{path} is not a file of templates ({error}); expected text, one template to a line"
        ) from None
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


PROTOCOL = Protocol(
    "zero_shot",
    by_class_names,
    "classification by the names of the classes",
    "accuracy",
    ZeroShotSettings,
    reads_texts=True,
    metrics=STYLES,
    verdict="first",
)
