"""Gradient caching: a batch of any size in the activation memory of one chunk, with the gradient of the full batch.

1. Each chunk is encoded without a graph; only the outputs that `contrast` needs are kept.
2. `contrast` sees all rows, and autograd gives the gradient in these outputs.
3. Each chunk is encoded again, now with a graph, and the gradient is passed on to the parameters.

Steps 1 and 3 are forward and backward of one autograd function. So anything may lie between encoding and loss (a gather
across processes), and the backward pass may be scaled, accumulated or called by a trainer: the gradient is that of the
full batch, and hooks on parameters see it once. Sharded weights (FSDP) are gathered by hooks that cannot run within
another backward pass: step 3 then comes after it.

Reference: Gao et al. 2021 (GradCache), https://arxiv.org/abs/2101.06983

- **One autograd function, not a trainer of its own.** Its forward encodes the parts without a graph, its backward
  encodes them again and gives the parameters' gradients to autograd. So the trainer's scaling, clipping, accumulation
  and hooks on parameters are untouched, and a gather fits between `encode` and `contrast`.
- **Gradients are returned, not accumulated inside**: hooks that reduce across processes fire once. It costs a second
  set of gradients while the parts are summed.
- **What has a gradient is seen, not declared**: the first part is encoded with its graph, which is dropped at once.
- **State is found by comparing**: buffers that the first pass changed are as they were when a part is encoded again.
  Versions of tensors do not tell: batch-norm changes its statistics unseen by them. Queues and banks are not looked
  at: they are large, and move in `after_step` alone.
- **Views of images are made in parts**, since they are many times larger than their bytes: what is drawn is drawn for
  the batch, and applied to rows. Sounds mix with others of the batch, so theirs are made at once.
- **A plan counts tensors and measures the rest.** The peak with few rows is elsewhere than that with many, so each
  operation has a line of its own. The process is measured after a real step of four samples.
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
from nearfar.nn.norm import count_as_one_batch
from nearfar.nn.queue import Queue

Encoded = dict[str, Tensor]  # each (B, ...)
Encode = Callable[[slice], Encoded]  # rows of the batch to what they are encoded to
Deferred = Callable[[], None]


def equal_chunks(rows: int, most: int, among: int = 0) -> list[slice]:
    """The fewest chunks of at most `most` rows; sizes differ by at most one row.

    Args:
        among: the most rows that any process has, if several share a batch: all processes have as many chunks.

    >>> [(chunk.start, chunk.stop) for chunk in equal_chunks(9, 4)]
    [(0, 3), (3, 6), (6, 9)]
    """
    if most < 1:
        raise ValueError(f"most is {most}, expected at least 1 row in a chunk")
    count = -(-max(rows, among) // most)
    return [slice(rows * i // count, rows * (i + 1) // count) for i in range(count)]


def encode_in_chunks(
    encode: Encode, module: nn.Module, chunks: Sequence[slice], *, deferred: list[Deferred] | None = None
) -> Encoded:
    """The outputs of `encode` on all chunks, concatenated, with the activations of one chunk in memory at a time.

    Args:
        encode: rows of the batch to (rows, ...) tensors by name. It is called again for each chunk in the backward
            pass, and must give the same outputs: torch's generators and the buffers of `module` are restored for it,
            and its changes to them count once.
        module: the outputs have a gradient in its parameters, and in no other tensor.
        chunks: of the batch, in order; with a single one this is `encode` itself.
        deferred: None: step 3 happens in the backward pass. With a list, the backward pass appends a function to it,
            to be called once after it, which adds the gradients to those of the parameters.

    BatchNorm in training sees a chunk, not the batch. Its running statistics are updated in step 1 only, by all chunks
    together as much as by one batch.
    """
    if len(chunks) == 1:
        return encode(chunks[0])
    work = _ChunkedEncoding(encode, module, chunks)
    encoded = work.first_pass()
    if work.names and torch.is_grad_enabled():
        values = [encoded[name] for name in work.names]
        sources = work.parameters if deferred is None else [torch.zeros((), requires_grad=True)]
        with_gradient = _CachedGradient.apply(work, values, deferred, *sources)  # type: ignore[no-untyped-call]
        encoded |= dict(zip(work.names, with_gradient, strict=True))
    return encoded


class _CachedGradient(torch.autograd.Function):
    """Returns the outputs of the first pass; its backward pass is the second pass."""

    @staticmethod
    def forward(
        ctx: Any, work: "_ChunkedEncoding", values: list[Tensor], deferred: list[Deferred] | None, *sources: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.work, ctx.deferred = work, deferred
        ctx.set_materialize_grads(False)
        return tuple(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.deferred is None:
            return None, None, None, *ctx.work.second_pass(gradients)
        ctx.deferred.append(partial(ctx.work.accumulate, gradients))
        return None, None, None, None


class _ChunkedEncoding:
    """Both passes over the chunks of one batch, with the state that the second must restore."""

    def __init__(self, encode: Encode, module: nn.Module, chunks: Sequence[slice]) -> None:
        self.encode, self.module, self.chunks = encode, module, chunks
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.names: list[str] = []  # of outputs with a gradient
        self._device = next(module.parameters(), torch.empty(0)).device.type
        self._precision = torch.is_autocast_enabled(self._device), torch.get_autocast_dtype(self._device)
        self._rng: list[_RNGState] = []  # before each chunk
        self._buffers: list[Encoded] = []  # those that encoding changes, before each chunk

    def first_pass(self) -> Encoded:
        """Encode all chunks without a graph. The first has one for a moment, to see which outputs have a gradient."""
        start, graph = {name: x.clone() for name, x in _buffers(self.module)}, torch.is_grad_enabled()
        found: list[Encoded] = []
        with count_as_one_batch(self.module, len(self.chunks)):
            for chunk in self.chunks:
                self._rng.append(_RNGState(self.module))
                self._buffers.append(_changed(self.module, start))
                # No cache: weights that autocast converts without a graph must not be reused with one.
                with torch.set_grad_enabled(graph and not found), self._autocast(cache=False):
                    encoded = self.encode(chunk)
                _check_rows(encoded, chunk)
                if not found:
                    self.names = [name for name, x in encoded.items() if x.requires_grad]
                found.append({name: x.detach() for name, x in encoded.items()})
                del encoded
        moved = _changed(self.module, start).keys()
        self._buffers = [{name: before.get(name, start[name]) for name in moved} for before in self._buffers]
        return {name: _concatenate(name, [each[name] for each in found]) for name in found[0]}

    def second_pass(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradient of each parameter, summed over the chunks, from the gradients (B, ...) of `names`."""
        total: list[Tensor | None] = [None] * len(self.parameters)
        for outputs, incoming in self._reencode(gradients):
            for i, gradient in enumerate(torch.autograd.grad(outputs, self.parameters, incoming, allow_unused=True)):
                if gradient is not None:
                    so_far = total[i]
                    total[i] = gradient.clone() if so_far is None else so_far.add_(gradient)
        return total

    def accumulate(self, gradients: Sequence[Tensor | None]) -> None:
        """The same, added to `.grad` chunk by chunk, so that hooks run for each chunk."""
        for outputs, incoming in self._reencode(gradients):
            torch.autograd.backward(outputs, incoming)

    def _reencode(self, gradients: Sequence[Tensor | None]) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        """The outputs of each chunk, with their graph, and their gradients; chunks without any are skipped."""
        with self._state_restored():
            for chunk, rng, buffers in zip(self.chunks, self._rng, self._buffers, strict=True):
                rng.restore()
                _write(self.module, buffers)
                with torch.enable_grad(), self._autocast(cache=True):
                    encoded = self.encode(chunk)
                pairs = self._outputs_and_gradients(encoded, chunk, gradients)
                del encoded
                if pairs:
                    yield [x for x, _ in pairs], [g for _, g in pairs]

    def _outputs_and_gradients(
        self, encoded: Encoded, chunk: slice, gradients: Sequence[Tensor | None]
    ) -> list[tuple[Tensor, Tensor]]:
        odd = [name for name, x in encoded.items() if x.requires_grad and name not in self.names]
        if odd:
            raise ValueError(f"{odd[0]!r} of encode has a gradient in some chunks only; remove --micro-batch-size")
        pairs = [(encoded[n], g[chunk]) for n, g in zip(self.names, gradients, strict=True) if g is not None]
        return [(x, g) for x, g in pairs if x.requires_grad]

    def _autocast(self, *, cache: bool) -> torch.autocast:
        enabled, dtype = self._precision
        return torch.autocast(self._device, dtype=dtype, enabled=enabled, cache_enabled=cache)

    @contextmanager
    def _state_restored(self) -> Iterator[None]:
        """Restore generators and buffers afterwards."""
        rng = _RNGState(self.module)
        own = dict(self.module.named_buffers())
        buffers = {name: own[name].clone() for name in self._buffers[0]}
        try:
            yield
        finally:
            rng.restore()
            _write(self.module, buffers)


class _RNGState:
    """The state of torch's generators on the CPU and on the module's device."""

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
    """Buffers that encoding may change. Queues and banks are large, and only `after_step` changes them."""
    stores = {id(b) for store in module.modules() if isinstance(store, Queue | Bank) for b in store.buffers()}
    yield from ((name, buffer) for name, buffer in module.named_buffers() if id(buffer) not in stores)


def _changed(module: nn.Module, start: Encoded) -> Encoded:
    """Copies of the buffers that changed; by value, since BatchNorm does not raise their version."""
    return {name: buffer.clone() for name, buffer in _buffers(module) if not torch.equal(buffer, start[name])}


@torch.no_grad()
def _write(module: nn.Module, values: Encoded) -> None:
    own = dict(module.named_buffers())
    for name, value in values.items():
        own[name].copy_(value)


def _check_rows(encoded: Encoded, chunk: slice) -> None:
    rows = chunk.stop - chunk.start
    for name, x in encoded.items():
        if x.ndim == 0 or len(x) != rows:
            raise ValueError(
                f"encode returns {name!r} of shape {tuple(x.shape)}, expected one row for each of {rows} samples of a "
                "chunk: code that mixes samples belongs in contrast; remove --micro-batch-size"
            )


def _concatenate(name: str, chunks: list[Tensor]) -> Tensor:
    shapes = sorted({tuple(x.shape[1:]) for x in chunks})
    if len(shapes) > 1:
        raise ValueError(f"{name!r} of encode has the shapes {shapes[0]} and {shapes[1]}; remove --micro-batch-size")
    return torch.cat(chunks)
