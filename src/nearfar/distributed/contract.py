"""Does a method keep its contract? Errors in one line: what is missing, what mixes samples, what draws numbers."""

import copy
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nearfar.distributed.processes import encode_shard
from nearfar.distributed.variants import PART, Subject, in_dtype, take_rows
from nearfar.plugins import PluginError, call_plugin

_DRAWS = frozenset(  # drawn anew by each process, and in the type of its numbers
    (
        *("bernoulli", "exponential_", "multinomial", "normal", "normal_", "poisson", "rand", "rand_like", "randint"),
        *("randint_like", "randn", "randn_like", "random_", "randperm", "uniform_"),
    )
)


def check_contract(subject: Subject) -> None:
    """Run `encode`, `contrast` and `after_step` once.

    Raises:
        PluginError: which part of the method is missing, failed, or returned something unexpected.
    """
    name, method = subject.name, subject.method
    if not isinstance(method, nn.Module):
        raise PluginError(f"{name} is a {type(method).__name__}, expected an nn.Module: a nearfar.methods.Method")
    if missing := [part for part in ("encode", "contrast", "after_step") if not callable(getattr(method, part, None))]:
        raise PluginError(f"{name} has no {missing[0]}, expected encode, contrast and after_step, as in Method")
    batches = subject.batches if isinstance(subject.batches, list | tuple) else [subject.batches]
    for batch in batches or [None]:
        if not is_dataclass(batch) or not isinstance(getattr(batch, "index", None), Tensor):
            raise PluginError(f"a batch for {name} is a {type(batch).__name__}, expected a nearfar.methods.Batch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        trained: Any = copy.deepcopy(method).double().train()
        batch, few = in_dtype(subject.batches[0], torch.float64), slice(PART)
        encoded = call_plugin(f"{name}.encode failed", lambda: trained.encode(batch))
        if not isinstance(encoded, dict) or not all(isinstance(x, Tensor) for x in encoded.values()):
            raise PluginError(f"{name}.encode gave a {type(encoded).__name__}, expected tensors by name, in a dict")
        of_part = call_plugin(f"{name}.encode failed on {PART} rows", lambda: trained.encode(take_rows(batch, few)))
        _check_rows(f"{name}.encode", encoded, len(batch.index), of_part)
        step = call_plugin(f"{name}.contrast failed", lambda: trained.contrast(encoded))
        loss = getattr(step, "loss", None)
        if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
            seen = f"a {type(step).__name__}" if loss is None else "a loss that is no scalar with a gradient"
            raise PluginError(f"{name}.contrast gave {seen}, expected a nearfar.methods.Step with a loss to train")
        call_plugin(f"{name}.after_step failed", lambda: trained.after_step(0.5))


def _check_rows(name: str, encoded: dict[str, Tensor], rows: int, of_part: dict[str, Tensor]) -> None:
    """Refuse tensors without one row for each sample, or with rows of another shape in a smaller batch."""
    for key, x in encoded.items():
        part = of_part.get(key)
        fault = ""
        if x.ndim == 0 or len(x) != rows:
            fault = f"of shape {tuple(x.shape)} for {rows} samples, expected a row for each"
        elif part is None or part.shape[1:] != x.shape[1:]:
            rest = "none" if part is None else f"rows of shape {tuple(part.shape[1:])}"
            fault = f"rows of shape {tuple(x.shape[1:])} for {rows} samples and {rest} for {PART}, expected the same"
        if fault:
            raise PluginError(f"{name} gives {key!r} {fault}: code that mixes samples belongs in contrast")


class _Drawing(TorchFunctionMode):
    """Records which functions of torch draw from its global generator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _DRAWS and (kwargs or {}).get("generator") is None:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def draws(subject: Subject) -> str:
    """A warning where `encode` draws numbers that differ by type, or on a share of the batch; else empty."""
    method, batch = copy.deepcopy(subject.method).double().train(), in_dtype(subject.batches[0], torch.float64)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _Drawing() as seen:
        method.encode(batch)  # type: ignore[operator]
    if not seen.names:
        return ""
    return (
        f"encode draws by {seen.names[0]}, which gives other numbers in float32 than in float64, and on a share of the "
        "batch than on the whole: draw in one type (torch.rand(x.shape).to(x)), on several processes by dropout or "
        "bernoulli_, which are drawn for all, or from the numbers of the samples (batch.index)"
    )


def same_object(subject: Subject) -> str:
    """A warning where a trained network also runs without a gradient under another name; else empty.

    Some methods run a network without a gradient, and some have one under two names; only a momentum network that is
    the very network it should follow is both.
    """
    method = copy.deepcopy(subject.method).double().train()
    names: dict[nn.Parameter, set[str]] = {}
    for name, parameter in method.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, set()).add(name.partition(".")[0])
    twice = {p for p, tops in names.items() if len(tops) > 1 and p.requires_grad}
    still: set[nn.Parameter] = set()

    def look(module: nn.Module, _: Any) -> None:
        if not torch.is_grad_enabled():
            still.update(p for p in module.parameters(recurse=False) if p.requires_grad)

    with ExitStack() as hooks:
        for module in method.modules():
            hooks.callback(module.register_forward_pre_hook(look).remove)
        encode_shard(method, in_dtype(subject.batches[0], torch.float64), None)  # type: ignore[arg-type]
    if found := twice & still:
        tops = sorted(names[next(iter(found))])
        return f"{' and '.join(tops)} are the same network: no momentum network; make it with nearfar.nn.frozen_copy"
    return ""
