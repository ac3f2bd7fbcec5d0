"""Tensors in the layout of any project to those of a network.

Projects wrap the same network in other names: `module.encoder_q.conv1.weight`, `teacher.backbone.conv1.weight`,
`classy_state_dict.base_model.model.trunk._feature_blocks.conv1.weight`. The prefix under which most of the network's
own names and shapes are found is taken off, whatever it is. Only where the names below it differ, too, is there a
`Naming`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from nearfar.weights.namings import Naming, namings

SHOWN = 3  # tensors that a message names
_PREFERRED = re.compile(r"(^|[._])(teacher|ema)([._]|$)|_ema\b")  # what these projects publish
_AVOIDED = re.compile(r"student|momentum|encoder_k|target|(^|[._])key")
_COUNTER = "num_batches_tracked"  # which older files lack


class MisfitError(ValueError):
    """The tensors are not those of the network.

    Attributes:
        share: part of the network's tensors that fit.
    """

    def __init__(self, problem: str, share: float = 0.0) -> None:
        super().__init__(problem)
        self.share = share


@dataclass(frozen=True)
class LayoutFit:
    """Tensors for a network, and what was found.

    Attributes:
        tensors: by the network's own names.
        prefix: what stood before the names.
        layout: what the names were, if not the network's own.
        left_out: parts of the file that the network has no place for.
        others: further prefixes under which the whole network was found.
    """

    tensors: dict[str, Tensor]
    prefix: str = ""
    layout: str = ""
    left_out: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def summary(self) -> str:
        """One line for the console.

        >>> LayoutFit({"a": Tensor()}, "module.", left_out=("fc", "queue")).summary()
        "1 tensor, without the prefix 'module.'; left out: fc, queue"
        """
        count = f"{len(self.tensors)} tensor{'s' if len(self.tensors) != 1 else ''}"
        parts = [count + (f" named as {self.layout}" if self.layout else "")]
        if self.prefix:
            parts[0] += f", without the prefix {self.prefix!r}"
        if self.others:
            parts.append(f"also there: {listed(self.others)}")
        if self.left_out:
            parts.append(f"left out: {listed(self.left_out)}")
        return "; ".join(parts)


def fit_layout(tensors: Mapping[str, Tensor], network: nn.Module) -> LayoutFit:
    """The tensors of a file in any layout as those of a network.

    Args:
        tensors: by any names, such as `read_tensors` gives them.
        network: whose names and shapes are looked for; it is not changed.

    Raises:
        MisfitError: with the first tensors that do not fit.
    """
    attempts = [_attempt(tensors, network, naming) for naming in namings(network)]
    best = max(attempts, key=lambda each: each.score)
    if not best.complete:
        converted = _converted(tensors, network, best)
        if converted is None:
            raise MisfitError(best.problem(), best.share)
        best = converted
    for name, x in best.fit.tensors.items():
        if x.is_floating_point() and not x.is_meta and not bool(x.isfinite().all()):
            raise MisfitError(f"{name} has values that are not finite; get the weights again")
    return best.fit


@dataclass(frozen=True)
class _Attempt:
    """What one way to name the tensors finds."""

    fit: LayoutFit
    missing: tuple[str, ...]  # the network's names that are not there
    reshaped: tuple[str, ...]  # with both shapes
    unplaced: tuple[str, ...]  # of the file, in parts that the network has

    @property
    def complete(self) -> bool:
        return not (self.missing or self.reshaped or self.unplaced)

    @property
    def score(self) -> tuple[bool, int, int]:
        return self.complete, len(self.fit.tensors), -len(self.unplaced)

    @property
    def wanted(self) -> int:
        return len(self.fit.tensors) + len(self.missing) + len(self.reshaped)

    @property
    def share(self) -> float:
        return len(self.fit.tensors) / max(1, self.wanted)

    def problem(self) -> str:
        found, wanted = len(self.fit.tensors), self.wanted
        where = f" under {self.fit.prefix!r}" if self.fit.prefix else ""
        faults = [f"{found} of {wanted} tensors fit{where}"]
        if self.reshaped:
            faults.append(listed(self.reshaped))
        if self.missing:
            faults.append(f"it lacks {listed(self.missing)}")
        if self.unplaced:
            faults.append(f"it has no place for {listed(self.unplaced)}")
        return "; ".join(faults)


def _attempt(tensors: Mapping[str, Tensor], network: nn.Module, naming: Naming) -> _Attempt:
    own = network.state_dict()
    theirs = {naming.names[name]: name for name in own if name in naming.names}
    fitting, named = Counter[str](), Counter[str]()
    for key, x in tensors.items():
        for start in _starts(key):
            if (name := theirs.get(key[start:])) is not None:
                named[key[:start]] += 1
                fitting[key[:start]] += own[name].shape == x.shape
    order = sorted(named, key=lambda prefix: (-fitting[prefix], -named[prefix], *_taste(prefix)))
    prefix = order[0] if order else ""
    found: dict[str, Tensor] = {}
    missing, reshaped, needed = [], [], _needed(network)
    for their_name, name in theirs.items():
        if (key := prefix + their_name) not in tensors:
            missing += [name] if name in needed else []
        elif (x := tensors[key]).shape != own[name].shape:
            reshaped.append(f"{name} has shape {tuple(x.shape)}, expected {tuple(own[name].shape)}")
        else:
            found[name] = x if naming.convert is None else naming.convert(name, x)
    missing += [name for name in own if name not in naming.names and name in needed]
    heads = {their_name.partition(".")[0] for their_name in theirs if "." in their_name}
    below = [key.removeprefix(prefix) for key in tensors if key.startswith(prefix)]
    left = (_COUNTER, *(f"{name}.{own}" for name in _removed_classifiers(network) for own in ("weight", "bias")))
    unplaced = [k for k in below if k not in theirs and k.partition(".")[0] in heads and not k.endswith(left)]
    complete = [each for each in order[1:] if fitting[each] == fitting[prefix]]
    fit = LayoutFit(found, prefix, naming.label, tuple(_left_out(tensors, theirs, prefix, complete)), tuple(complete))
    return _Attempt(fit, tuple(missing), tuple(reshaped), tuple(unplaced if found else []))


def _removed_classifiers(network: nn.Module) -> list[str]:
    """Where layers for classes may have been: what does nothing, behind the last layer that has parameters.

    timm's `head.fc` and torchvision's `classifier.3` stand beside layers that stay, so that the first part of a name
    does not tell that they are of classes.
    """
    leaves = [(name, each) for name, each in network.named_modules() if not any(True for _ in each.children())]
    last = max((i for i, (_, each) in enumerate(leaves) if any(True for _ in each.parameters())), default=-1)
    return [name for name, each in leaves[last + 1 :] if isinstance(each, nn.Identity)]


def _starts(key: str) -> Iterator[int]:
    """Where a name may begin within a key: at its start, and after each dot."""
    yield 0
    yield from (place + 1 for place, letter in enumerate(key) if letter == ".")


def _taste(prefix: str) -> tuple[int, int]:
    """Of equal finds, the one that its project publishes comes first: DINO's teacher, MoCo's query encoder."""
    taste = bool(_PREFERRED.search(prefix)) - bool(_AVOIDED.search(prefix))
    return -taste, len(prefix)


def _needed(network: nn.Module) -> set[str]:
    """What a network cannot compute without: its parameters and statistics, not counters and constant tables."""
    parameters = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    return parameters | {name for name in network.state_dict() if name.endswith(("running_mean", "running_var"))}


def _left_out(
    tensors: Mapping[str, Tensor], theirs: Mapping[str, str], prefix: str, others: list[str]
) -> Iterator[str]:
    """The first names of what stays in the file, each once."""
    seen: set[str] = set()
    for key in tensors:
        own = key.startswith(prefix) and key.removeprefix(prefix) in theirs
        if own or key.startswith(tuple(others)):
            continue
        shared = prefix
        while not key.startswith(shared):
            shared = shared[: shared.rstrip(".").rfind(".") + 1]
        part = key.removeprefix(shared).partition(".")[0]
        if part not in seen:
            seen.add(part)
            yield part


def _converted(tensors: Mapping[str, Tensor], network: nn.Module, best: _Attempt) -> _Attempt | None:
    """What timm's own reader of original checkpoints makes of them: other names, resized position embeddings."""
    import sys

    reader: Callable[..., Any] | None = getattr(sys.modules.get(type(network).__module__), "checkpoint_filter_fn", None)
    if reader is None or not type(network).__module__.startswith("timm."):
        return None
    prefixes = [best.fit.prefix, *({key[: -len(name)] for name in _ROOTS for key in tensors if key.endswith(name)})]
    for prefix in dict.fromkeys(prefixes):
        below = {key.removeprefix(prefix): x for key, x in tensors.items() if key.startswith(prefix)}
        try:
            renamed = reader(dict(below), network)
        except Exception:  # it is written for whole checkpoints of its own kind
            continue
        if not isinstance(renamed, Mapping) or not all(isinstance(x, Tensor) for x in renamed.values()):
            continue
        found = _attempt(dict(renamed), network, Naming("", {name: name for name in network.state_dict()}))
        if found.complete and found.fit.tensors:
            label = "" if below.keys() & found.fit.tensors.keys() else "its project does"
            left = tuple(_left_out(tensors, {name: name for name in below}, prefix, []))
            fit = LayoutFit(found.fit.tensors, prefix + found.fit.prefix, label, (*found.fit.left_out, *left))
            return _Attempt(fit, (), (), ())
    return None


_ROOTS = ("visual.class_embedding", "visual.trunk.patch_embed.proj.weight", "cls_token", "patch_embed.proj.weight")


def listed(items: tuple[str, ...]) -> str:
    """
    >>> listed(("a", "b", "c", "d", "e"))
    'a, b, c and 2 more'
    """
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
