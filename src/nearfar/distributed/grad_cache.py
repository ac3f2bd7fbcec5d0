"""Gradient caching: a batch of any size in the activation memory of a part of it, with the gradient of the whole.

1. Each part is encoded without a graph; only its rows of what `contrast` needs are kept.
2. `contrast` sees all rows, and autograd brings the gradient back to them.
3. Each part is encoded once more, now with its graph, through which this gradient goes on to the parameters.

The first and the third are forward and backward of one autograd function. So whatever lies between encoding and loss (a
gather across processes) and however the backward pass is called (scaled, accumulated, by a trainer), the gradient is
that of the whole batch, and hooks on parameters see it once. Where processes hold the parts of the weights (FSDP), they
are put together by hooks that cannot work within another backward pass: the third then comes after it.

Reference: Gao et al. 2021 (GradCache), https://arxiv.org/abs/2101.06983
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from nearfar.nn.bank import Bank
from nearfar.nn.norm import counted_once
from nearfar.nn.queue import Queue

Encoded = dict[str, Tensor]  # each (B, ...)
Encode = Callable[[slice], Encoded]  # rows of the batch to what they are encoded to
Later = Callable[[], None]


def equal_parts(rows: int, most: int, among: int = 0) -> list[slice]:
    """The fewest parts of at most `most` rows, none larger than another by more than one row.

    Args:
        among: rows of the process that has most of them, where several share a batch: all have as many parts as it.

    >>> [(part.start, part.stop) for part in equal_parts(9, 4)]
    [(0, 3), (3, 6), (6, 9)]
    """
    if most < 1:
        raise ValueError(f"most is {most}, expected at least 1 row in a part")
    count = -(-max(rows, among) // most)
    return [slice(rows * i // count, rows * (i + 1) // count) for i in range(count)]


def encode_in_parts(
    encode: Encode, module: nn.Module, parts: Sequence[slice], *, later: list[Later] | None = None
) -> Encoded:
    """What `encode` gives of all parts, one below the other, with the activations of one part in memory at a time.

    Args:
        encode: rows of the batch to their (rows, ...) tensors by name. It is called once more for each part in the
            backward pass, and must give the same again: what it draws from torch's own generators is drawn again,
            buffers of `module` are as they were, and what it changes in them counts once.
        module: whose parameters the result has a gradient in, and in no other tensor.
        parts: of the batch, in order; with a single one this is `encode` itself.
        later: None: the third pass is part of the backward pass. Where a list is given, the backward pass adds to it a
            function, to be called once after it, which adds the gradients to those that the parameters have.

    Batch-norms in training see a part, not the batch. Their running statistics move in the first pass alone, by as much
    in all parts together as by one batch.
    """
    if len(parts) == 1:
        return encode(parts[0])
    work = _Parts(encode, module, parts)
    encoded = work.first_pass()
    if work.names and torch.is_grad_enabled():
        values = [encoded[name] for name in work.names]
        sources = work.parameters if later is None else [torch.zeros((), requires_grad=True)]
        with_gradient = _Caching.apply(work, values, later, *sources)  # type: ignore[no-untyped-call]
        encoded |= dict(zip(work.names, with_gradient, strict=True))
    return encoded


class _Caching(torch.autograd.Function):
    """The values that a first pass gave; their gradient goes to the parameters by a second pass."""

    @staticmethod
    def forward(
        ctx: Any, work: "_Parts", values: list[Tensor], later: list[Later] | None, *sources: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.work, ctx.later = work, later
        ctx.set_materialize_grads(False)
        return tuple(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.later is None:
            return None, None, None, *ctx.work.second_pass(gradients)
        ctx.later.append(partial(ctx.work.accumulate, gradients))
        return None, None, None, None


class _Parts:
    """Both passes over the parts of one batch, and all that the second must find as it was in the first."""

    def __init__(self, encode: Encode, module: nn.Module, parts: Sequence[slice]) -> None:
        self.encode, self.module, self.parts = encode, module, parts
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.names: list[str] = []  # of what has a gradient
        self._device = next(module.parameters(), torch.empty(0)).device.type
        self._precision = torch.is_autocast_enabled(self._device), torch.get_autocast_dtype(self._device)
        self._chance: list[_Chance] = []  # before each part
        self._buffers: list[Encoded] = []  # those that encoding changes, before each part

    def first_pass(self) -> Encoded:
        """All parts without a graph; only the first has one, to tell what has a gradient, and loses it at once."""
        start, graph = _copies(self.module), torch.is_grad_enabled()
        found: list[Encoded] = []
        with counted_once(self.module, len(self.parts)):
            for part in self.parts:
                self._chance.append(_Chance(self.module))
                self._buffers.append(_changed(self.module, start))
                # A weight that autocast casts without a graph must not be found cast when there is one: no cache.
                with torch.set_grad_enabled(graph and not found), self._autocast(cache=False):
                    encoded = self.encode(part)
                _check_rows(encoded, part)
                if not found:
                    self.names = [name for name, x in encoded.items() if x.requires_grad]
                found.append({name: x.detach() for name, x in encoded.items()})
                del encoded
        moved = _changed(self.module, start).keys()
        self._buffers = [{name: before.get(name, start[name]) for name in moved} for before in self._buffers]
        return {name: _joined(name, [each[name] for each in found]) for name in found[0]}

    def second_pass(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """(of each parameter) the sum over the parts, from the gradients (B, ...) of `names`."""
        total: list[Tensor | None] = [None] * len(self.parameters)
        for outputs, incoming in self._again(gradients):
            for i, gradient in enumerate(torch.autograd.grad(outputs, self.parameters, incoming, allow_unused=True)):
                if gradient is not None:
                    so_far = total[i]
                    total[i] = gradient.clone() if so_far is None else so_far.add_(gradient)
        return total

    def accumulate(self, gradients: Sequence[Tensor | None]) -> None:
        """The same into the parameters' own gradients, part by part, so that hooks on the way see each part's."""
        for outputs, incoming in self._again(gradients):
            torch.autograd.backward(outputs, incoming)

    def _again(self, gradients: Sequence[Tensor | None]) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        """Of each part that has a gradient, what it is encoded to, with its graph, and the gradients of that."""
        with self._put_back():
            for part, chance, buffers in zip(self.parts, self._chance, self._buffers, strict=True):
                chance.restore()
                _write(self.module, buffers)
                with torch.enable_grad(), self._autocast(cache=True):
                    encoded = self.encode(part)
                pairs = self._of_part(encoded, part, gradients)
                del encoded
                if pairs:
                    yield [x for x, _ in pairs], [g for _, g in pairs]

    def _of_part(
        self, encoded: Encoded, part: slice, gradients: Sequence[Tensor | None]
    ) -> list[tuple[Tensor, Tensor]]:
        odd = [name for name, x in encoded.items() if x.requires_grad and name not in self.names]
        if odd:
            raise ValueError(
                f"encode gives {odd[0]!r} a gradient in some parts of the batch and none in the first; expected the "
                "same in all; leave --micro-batch out"
            )
        pairs = [(encoded[n], g[part]) for n, g in zip(self.names, gradients, strict=True) if g is not None]
        return [(x, g) for x, g in pairs if x.requires_grad]

    def _autocast(self, *, cache: bool) -> torch.autocast:
        enabled, dtype = self._precision
        return torch.autocast(self._device, dtype=dtype, enabled=enabled, cache_enabled=cache)

    @contextmanager
    def _put_back(self) -> Iterator[None]:
        """Generators and buffers as they were before, whatever happens within."""
        chance = _Chance(self.module)
        own = dict(self.module.named_buffers())
        buffers = {name: own[name].clone() for name in self._buffers[0]}
        try:
            yield
        finally:
            chance.restore()
            _write(self.module, buffers)


class _Chance:
    """The state of torch's generators: the CPU's and that of the module's device."""

    def __init__(self, module: nn.Module) -> None:
        self._cpu = torch.get_rng_state()
        first = next(module.parameters(), torch.empty(0))
        self._kind = first.device.type
        self._devices, self._states = get_device_states(first)

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._devices:
            set_device_states(self._devices, self._states, device_type=self._kind)


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All that encoding might change. Queues and banks are large, and `after_step` alone moves them."""
    stores = {id(b) for part in module.modules() if isinstance(part, Queue | Bank) for b in part.buffers()}
    yield from ((name, buffer) for name, buffer in module.named_buffers() if id(buffer) not in stores)


def _copies(module: nn.Module) -> Encoded:
    return {name: buffer.clone() for name, buffer in _buffers(module)}


def _changed(module: nn.Module, start: Encoded) -> Encoded:
    """Copies of the buffers that are not what they were. By value: batch-norm changes its own unseen by versions."""
    return {name: buffer.clone() for name, buffer in _buffers(module) if not torch.equal(buffer, start[name])}


@torch.no_grad()
def _write(module: nn.Module, values: Encoded) -> None:
    own = dict(module.named_buffers())
    for name, value in values.items():
        own[name].copy_(value)


def _check_rows(encoded: Encoded, part: slice) -> None:
    rows = part.stop - part.start
    for name, x in encoded.items():
        if x.ndim == 0 or len(x) != rows:
            raise ValueError(
                f"encode gives {name!r} of shape {tuple(x.shape)}, expected one row for each of the {rows} samples of "
                "a part: what mixes samples belongs into contrast; leave --micro-batch out"
            )


def _joined(name: str, parts: list[Tensor]) -> Tensor:
    shapes = sorted({tuple(x.shape[1:]) for x in parts})
    if len(shapes) > 1:
        raise ValueError(
            f"encode gives {name!r} rows of shape {shapes[0]} in one part of the batch and {shapes[1]} in another, "
            "expected the same in all; leave --micro-batch out"
        )
    return torch.cat(parts)
