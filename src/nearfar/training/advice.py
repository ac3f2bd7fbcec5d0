"""Do the settings fit the data? Said before the first step, with the option to set.

The defaults are the papers', for a million images and hundreds of thousands of steps. On a folder of a few hundred
photographs some of them cannot work. What concerns one method alone is in its own `advice`.
"""

import math
import re
from pathlib import Path

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.config import TrainConfig
from nearfar.data.dataset import counted
from nearfar.data.rows import GROUPS, usual_column
from nearfar.data.tables import READERS, path_and_rows, read_columns
from nearfar.methods import Method
from nearfar.methods.advice import RunFacts, Verdict

_STEPS = 200  # fewer optimizer steps teach next to nothing
_ENOUGH = 1000  # so many are advised instead, and the rest of the advice is for them
_EQUAL = 0.2  # part of all pairs of samples that may be no negatives
_SMALL_HEADS = 500_000  # parameters that no encoder is too small for
_HEADS = 20  # heads so many times larger than the encoder are most of the time and memory


def advise(
    config: TrainConfig,
    method: Method,
    *,
    samples: int,
    total: int,
    ids: Tensor | None = None,
    groups: Tensor | None = None,
) -> list[Verdict]:
    """What does not fit, in plain words, with what to set.

    Args:
        samples: of the training part.
        total: optimizer steps of the whole run.
        ids: (N,) equal where samples are no negatives of each other.
        groups: (N,) what the data or a table say of that, beside what equal captions and texts do.
    """
    short = _few_steps(config, samples, total)
    facts = RunFacts(
        samples=samples,
        steps=total if short is None else _ENOUGH,
        batch_size=config.batch_size,
        accumulate=config.accumulate_batches,
        start_weights=config.pretrained or config.weights is not None,
        too_short=short is not None,
    )
    negatives = None if ids is None else _negatives(ids, groups, config)
    found = (
        short,
        _long_warmup(config, samples, total),
        *method.advice(facts),
        _heads(method),
        _batch_norm(method, config),
        negatives,
    )
    return [verdict for verdict in found if verdict is not None]


def labels_hint(config: TrainConfig) -> str | None:
    """How to say that sub-folders are classes, where there are some and nothing was said of them."""
    folder = Path(config.data.path).expanduser()
    if config.data.labels is not None or config.kind not in ("image", "sound") or not folder.is_dir():
        return None
    if sum(inside.is_dir() for inside in folder.iterdir()) < 2:
        return None
    return "if the sub-folders are classes, set --data.labels true"


def _negatives(ids: Tensor, groups: Tensor | None, config: TrainConfig) -> Verdict | None:
    equal = _equal_pairs(ids)
    if equal <= _EQUAL:
        return None
    by_group = groups is not None and _equal_pairs(groups) > _EQUAL
    why, way_out = _of_groups(config) if by_group else ("caption or text", "look for captions that many samples share")
    return Verdict(
        "warning",
        "negatives",
        f"{equal:.0%} of all pairs of samples are not used as negatives, because their {why} is the same: too little "
        f"is left to learn from; {way_out}",
    )


def _equal_pairs(ids: Tensor) -> float:
    """The part of all pairs of samples whose ids are equal."""
    often = ids.unique(return_counts=True)[1].double()
    return float((often * (often - 1)).sum()) / max(1, len(ids) * (len(ids) - 1))


def _of_groups(config: TrainConfig) -> tuple[str, str]:
    """Where groups come from, and what to do where they are too large."""
    read = config.data
    if read.groups_file is not None:
        return f"group in {read.groups_file}", "leave --group out, or split the groups that are too large"
    column = read.group_column or _group_column(config)
    if column is None:
        return "group", "split the groups that are too large"
    way_out = '--data.group_column "" uses no group column, --data.group_column NAME another one'
    return f"group, the column {column!r} of {config.data.path},", f"if these are topics or classes, {way_out}"


def _group_column(config: TrainConfig) -> str | None:
    """The column that is taken for groups although nobody named it."""
    if config.data.pattern is not None:
        return usual_column(re.findall(r"{(.+?)}", config.data.pattern), GROUPS)
    path = Path(path_and_rows(config.data.path)[0]).expanduser()
    return usual_column(read_columns(path), GROUPS) if path.suffix.lower() in READERS and path.is_file() else None


def _few_steps(config: TrainConfig, samples: int, total: int) -> Verdict | None:
    if total >= _STEPS:
        return None
    batch = f" or, with {samples:,} samples, --batch-size 64" if config.batch_size > 64 else ""
    if config.steps is not None:
        more = f"give more --time, or --steps {_ENOUGH}"
        return Verdict("warning", "few_steps", f"{counted(total, 'step')}: too few to learn from; {more}{batch}")
    epochs = math.ceil(config.epochs * _ENOUGH / total)
    return Verdict(
        "warning",
        "few_steps",
        f"{counted(config.epochs, 'epoch')} of {samples:,} samples {'are' if config.epochs > 1 else 'is'} "
        f"{counted(total, 'step')}: too few to learn from; set --epochs {epochs}{batch}",
    )


def _long_warmup(config: TrainConfig, samples: int, total: int) -> Verdict | None:
    """Papers count the warm-up in epochs of a long run."""
    epochs = config.optimizer.warmup_epochs
    planned = total * config.accumulate_batches * config.batch_size / max(1, samples)
    if epochs is None or epochs < planned / 2:
        return None
    return Verdict(
        "warning",
        "warmup",
        f"the warm-up of {epochs:g} epochs takes most of a run of {planned:.3g}: the learning rate hardly reaches its "
        "peak; train longer, or set --optimizer.warmup_ratio 0.05",
    )


def _heads(method: Method) -> Verdict | None:
    encoder = sum(p.numel() for p in method.encoder.parameters())
    heads = sum(p.numel() for p in method.parameters() if p.requires_grad) - encoder
    if heads <= max(_HEADS * encoder, _SMALL_HEADS):
        return None
    return Verdict(
        "note",
        "heads",
        f"the heads have {heads / 1e6:.0f} million parameters, the encoder {encoder / 1e6:.1f}: most of the time goes "
        "into them; --options.dim and --options.hidden make them smaller",
    )


def _batch_norm(method: Method, config: TrainConfig) -> Verdict | None:
    own = -(-config.batch_size // (config.processes * config.nodes))  # rows of a process
    parts = -(-own // (config.micro_batch_size or own))
    most = -(-config.batch_size // parts)  # rows that all processes encode together
    if parts == 1 or not any(isinstance(part, _BatchNorm) for part in method.modules()):
        return None
    if 0 < 2 * method.group <= most:  # its BatchNorm never sees more
        return None
    return Verdict(
        "note",
        "batch_norm",
        f"batch-norm sees the {most} samples that are encoded at a time, not the {config.batch_size:,} of the batch; "
        "loss and gradient are otherwise those of the whole batch",
    )
