"""Gradient caching: the loss and the gradient of the whole batch, in the memory of a part of it."""

import copy
import weakref
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.distributed.grad_cache import encode_in_chunks, equal_chunks
from nearfar.methods import CLIP, METHODS, Batch, Method
from nearfar.methods.method import Encoded
from nearfar.nn.sequence import CPCEncoder, DilatedEncoder
from nearfar.nn.text import TextEncoder
from nearfar.nn.towers import TwoTowers
from tests.support.facts import facts

SAMPLES, ROWS, MOST = 64, 16, 6  # parts of 5, 5 and 6 rows
PICTURES = {name for name, kind in METHODS.items() if kind.modalities == ("image",)}  # no vectors


class Vectors(nn.Sequential):
    """(B, 10) to (B, 12), with a dropout that is drawn anew for every call."""

    num_features = 12

    def __init__(self, dropout: float) -> None:
        super().__init__(
            nn.Linear(10, 12), nn.BatchNorm1d(12), nn.GELU(), nn.Dropout(dropout), nn.LayerNorm(12), nn.Linear(12, 12)
        )


def words(dropout: float) -> nn.Module:
    return TextEncoder(40, 9, width=12, layers=1, heads=2, dropout=dropout)


def make(name: str, *, dropout: float = 0.0) -> Method:
    """In float64, its batch-norms frozen: they are the only thing that sees more than a sample."""
    torch.manual_seed(0)
    encoder: nn.Module = Vectors(dropout)
    if issubclass(METHODS[name], CLIP):
        encoder = TwoTowers(encoder, words(dropout), embed_dim=8)
    elif name == "cpc":
        encoder = CPCEncoder(1, kernels=(4, 4), strides=(2, 2), width=8, context=6)
    elif name == "ts2vec":
        encoder = DilatedEncoder(1, width=6, depth=2, features=8)
    elif name in ("simcse", "mlm"):
        encoder = words(max(dropout, 0.1) if name == "simcse" else dropout)
    options = dict(METHODS[name].toy_options)
    if "dims" in options:
        options["dims"] = [12, 4]
    if name in PICTURES:
        method = METHODS[name].toy()[0].double().train()
        for part in method.modules():
            if isinstance(part, nn.Dropout):
                part.p = dropout
    else:
        method = METHODS[name](encoder, features=12, samples=SAMPLES, **options).double().train()
    for part in method.modules():
        if isinstance(part, _BatchNorm):
            part.eval()
    return method


def make_batch(name: str, step: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(step)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tokens = torch.randint(4, 40, (ROWS, 9), generator=generator)
    tokens = tokens.masked_fill(torch.arange(9) >= torch.randint(3, 10, (ROWS, 1), generator=generator), 0)
    x = normal(ROWS, 10)
    views: Sequence[Tensor] = [x + 0.3 * normal(ROWS, 10), x + 0.3 * normal(ROWS, 10)]
    if issubclass(METHODS[name], CLIP):
        views = [x, tokens]
    elif name in ("cpc", "ts2vec"):
        wave = normal(ROWS, 1, 40)
        wave[3, :, 25:] = torch.nan  # a shorter one
        views = [wave]
    elif name in ("simcse", "mlm"):
        views = [tokens, tokens.flip(0)] if name == "mlm" else [tokens, tokens.flip(0), tokens.roll(1, 0)]
    elif name in PICTURES:
        views = METHODS[name].toy(rows=ROWS)[1][step % 2].views
    index = torch.randperm(SAMPLES, generator=generator)[:ROWS]
    ids = index.clone()
    ids[1] = ids[0]  # two that are no negatives of each other
    return Batch(views, index, ids, labels=torch.arange(ROWS) % 4)


def rows_of(batch: Batch, rows: slice) -> Batch:
    assert batch.labels is not None
    return Batch([x[rows] for x in batch.views], batch.index[rows], batch.ids[rows], batch.labels[rows])


def encoding(method: Method, batch: Batch) -> Callable[[slice], Encoded]:
    return lambda rows: method.encode(rows_of(batch, rows))


def cached(method: Method, batch: Batch, most: int = MOST) -> Encoded:
    return encode_in_chunks(encoding(method, batch), method, equal_chunks(ROWS, most))


def in_one_graph(method: Method, batch: Batch, most: int = MOST) -> Encoded:
    """The reference: the same parts, and all their activations held."""
    parts = [method.encode(rows_of(batch, rows)) for rows in equal_chunks(ROWS, most)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def whole(method: Method, batch: Batch, most: int = MOST) -> Encoded:
    return method.encode(batch)


Way = Callable[[Method, Batch, int], Encoded]


def steps(method: Method, name: str, way: Way, count: int = 2) -> list[Tensor]:
    """A few steps of plain descent: losses, then the last gradients, then all state."""
    found = []
    for step in range(count):
        torch.manual_seed(100 + step)
        method.zero_grad()
        loss = method.contrast(way(method, make_batch(name, step), MOST)).loss
        loss.backward()
        with torch.no_grad():
            for parameter in method.parameters():
                if parameter.grad is not None and step < count - 1:
                    parameter -= 0.1 * parameter.grad
        method.after_step((step + 1) / count)
        found.append(loss.detach())
    found += [torch.zeros(()) if p.grad is None else p.grad for p in method.parameters()]
    return found + [value for value in method.state_dict().values() if value.is_floating_point()]


def assert_equal(seen: list[Tensor], expected: list[Tensor]) -> None:
    for x, y in zip(seen, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_loss_gradient_and_state_are_those_of_one_graph(name: str, dropout: float) -> None:
    method = make(name, dropout=dropout)
    expected = steps(copy.deepcopy(method), name, in_one_graph)
    assert_equal(steps(method, name, cached), expected)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "simcse"])  # whose masks are drawn by the part
def test_without_chance_they_are_those_of_the_undivided_batch(name: str) -> None:
    method = make(name)
    expected = steps(copy.deepcopy(method), name, whole)
    assert_equal(steps(method, name, cached), expected)


@pytest.mark.parametrize("name", METHODS)
def test_what_has_no_gradient_gets_none(name: str) -> None:
    method, batch = make(name), make_batch(name)
    seen, expected = cached(method, batch), whole(method, batch)
    assert {n: x.requires_grad for n, x in seen.items()} == {n: x.requires_grad for n, x in expected.items()}
    step = method.contrast(seen)
    assert not step.z1.requires_grad and not step.z2.requires_grad
    with torch.no_grad():
        assert not any(x.requires_grad for x in cached(method, batch).values())


def test_a_part_that_is_the_whole_is_encoded_as_ever() -> None:
    method, batch = make("simclr"), make_batch("simclr")
    assert torch.equal(cached(method, batch, ROWS)["z1"], whole(method, batch)["z1"])


def test_dropout_of_another_draw_would_be_seen() -> None:
    """The tests above can fail: without the replayed generator the gradient is another."""
    method, batch = make("simclr", dropout=0.3), make_batch("simclr")
    torch.manual_seed(0)
    loss = method.contrast(in_one_graph(method, batch)).loss
    torch.manual_seed(1)
    assert not torch.allclose(method.contrast(in_one_graph(method, batch)).loss, loss)


def test_the_backward_pass_leaves_the_generator_where_it_was() -> None:
    method, batch = make("simclr", dropout=0.3), make_batch("simclr")
    loss = method.contrast(cached(method, batch)).loss
    state = torch.get_rng_state()
    loss.backward()
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_accumulate_and_scale() -> None:
    method = make("moco")
    expected = copy.deepcopy(method)
    for step in range(2):
        (0.5 * method.contrast(cached(method, make_batch("moco", step))).loss).backward()
        (0.5 * expected.contrast(whole(expected, make_batch("moco", step))).loss).backward()
    assert_equal(
        [p.grad for p in method.parameters() if p.grad is not None],
        [p.grad for p in expected.parameters() if p.grad is not None],
    )


def test_hooks_on_parameters_see_the_sum_once() -> None:
    method, calls = make("simclr"), []
    for parameter in method.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: calls.append(p))
    method.contrast(cached(method, make_batch("simclr"))).loss.backward()
    assert len(calls) == sum(p.requires_grad for p in method.parameters())


@pytest.mark.parametrize("name", ["simclr", "moco", "cpc", "simcse"])
def test_bfloat16_autocast(name: str) -> None:
    method, batch = make(name).float(), make_batch(name)
    views = [x.float() if x.is_floating_point() else x for x in batch.views]
    batch = Batch(views, batch.index, batch.ids, batch.labels)
    found = []
    for way in (cached, in_one_graph):
        method.zero_grad()
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = method.contrast(way(method, batch, MOST)).loss
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in method.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1]) > 1
    for x, y in zip(*found, strict=True):
        torch.testing.assert_close(x, y, rtol=0.05, atol=0.05 * float(y.abs().max()) + 1e-6)


# What it costs


def held_bytes(work: Callable[[], Tensor]) -> int:
    """The most bytes that autograd holds at a time for the backward pass, of `work` and its backward pass."""
    live = most = 0

    class Held:
        def __init__(self, x: Tensor) -> None:
            self.x = x.detach()  # without its graph, of which it is a part

    def release(size: int) -> None:
        nonlocal live
        live -= size

    def pack(x: Tensor) -> Held:
        nonlocal live, most
        held, size = Held(x), x.numel() * x.element_size()
        live += size
        most = max(most, live)
        weakref.finalize(held, release, size)
        return held

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.x):
        work().backward()
    return most


def deep(rows: int) -> tuple[Method, Batch]:
    torch.manual_seed(0)
    encoder = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU()) for _ in range(12)))
    views = [torch.randn(rows, 32) for _ in range(2)]
    index = torch.arange(rows)
    method = METHODS["simclr"](encoder, features=32, dim=4, hidden=8)
    return method, Batch(views, index, index, labels=index)


def test_held_memory_does_not_grow_as_the_batch_does() -> None:
    held: dict[str, list[int]] = {"dense": [], "cached": []}
    for rows in (264, 2112):  # of fewer rows the whole matrix is kept
        method, batch = deep(rows)
        held["dense"].append(held_bytes(lambda: method(batch).loss))  # noqa: B023
        parts = equal_chunks(rows, 32)
        held["cached"].append(
            held_bytes(lambda: method.contrast(encode_in_chunks(encoding(method, batch), method, parts)).loss)  # noqa: B023
        )
    print(f"\nheld for the backward pass at 264 and 2,112 rows: {held}")
    assert held["dense"][1] > 7 * held["dense"][0]
    assert held["cached"][1] < 1.7 * held["cached"][0]  # the embeddings themselves, 4 features of each row
    assert held["cached"][1] < held["dense"][1] / 8


def test_it_costs_one_more_forward_pass_and_no_more() -> None:
    seen = []
    method, batch = make("byol"), make_batch("byol")
    method.encoder.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    method(batch).loss.backward()
    once = sum(seen)
    seen.clear()
    method.contrast(cached(method, batch)).loss.backward()
    assert once == 2 * ROWS and sum(seen) == 2 * once


# Batch-norm and other state within the encoder


def test_running_statistics_move_once_and_by_a_batch() -> None:
    """The effect of batch-norm that sees parts, measured; `pytest -s` shows it."""
    found = {}
    for way in (whole, in_one_graph, cached):
        torch.manual_seed(0)
        method = METHODS["simclr"](Vectors(0.0), features=12, dim=8).double()
        loss = method.contrast(way(method, make_batch("simclr"), MOST)).loss
        after_forward = {n: b.clone() for n, b in method.named_buffers()}
        loss.backward()
        for name, buffer in method.named_buffers():
            assert torch.equal(buffer, after_forward[name]), name  # the second pass changed nothing
        gradient = torch.cat([p.grad.flatten() for p in method.parameters() if p.grad is not None])
        found[way.__name__] = loss.detach(), gradient, method.encoder[1].running_mean.clone()
    (loss, gradient, mean), (_, chunked, twice), (seen, own, moved) = (found[n] for n in found)
    torch.testing.assert_close(own, chunked, rtol=1e-10, atol=1e-12)  # exact, given what batch-norm sees
    print(
        f"\nbatch-norm of {MOST} instead of {ROWS}: loss {float(seen - loss):+.2e}, gradient off by "
        f"{float((own - gradient).norm() / gradient.norm()):.1%}, running mean by "
        f"{float((moved - mean).norm() / mean.norm()):.1%} (by {float((twice - mean).norm() / mean.norm()):.0%} "
        "where each part counts as a batch)"
    )
    assert (moved - mean).norm() < 0.1 * mean.norm() < (twice - mean).norm()


def test_mocos_groups_are_the_same_where_the_parts_are_whole_groups() -> None:
    torch.manual_seed(0)
    method = METHODS["moco"](Vectors(0.0), features=12, dim=8, queue_size=24, group=4).double()
    batch = make_batch("moco")
    seen, expected = cached(method, batch, 8), whole(method, batch)
    torch.testing.assert_close(seen["q"], expected["q"], rtol=1e-10, atol=1e-12)
    assert not torch.allclose(seen["k"], expected["k"])  # keys are shuffled within a part


class Counting(nn.Module):
    """Its output depends on a buffer that each forward pass changes."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 12)
        self.register_buffer("seen", torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 0.1 * x.detach().abs().mean()
        y: Tensor = self.linear(x) * self.seen.clone()
        return y.tanh()


def test_buffers_are_as_they_were() -> None:
    torch.manual_seed(0)
    method = METHODS["vicreg"](Counting(), features=12, dim=8, hidden=16).double()
    for part in method.projector:
        if isinstance(part, _BatchNorm):
            part.eval()
    expected = steps(copy.deepcopy(method), "vicreg", in_one_graph)
    assert_equal(steps(method, "vicreg", cached), expected)


# What cannot be split is refused in a line


class Broken(Method):
    def __init__(self, encode: Callable[[Tensor], Encoded]) -> None:
        super().__init__()
        self.encoder, self._encode = nn.Linear(10, 12).double(), encode

    def encode(self, batch: Batch) -> Encoded:
        return self._encode(self.encoder(batch.views[0]))


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda h: {"mean": h.mean()}, "'mean' 5"),
        (lambda h: {"gram": h.T @ h}, "'gram' (12, 12) 5"),
        (lambda h: {"s": h @ h.T}, "'s' (5,) (6,)"),
    ],
)
def test_what_mixes_samples_is_refused(encode: Callable[[Tensor], Encoded], message: str) -> None:
    with pytest.raises(ValueError, match=facts(message)):
        cached(Broken(encode), make_batch("simclr"))


def test_parts_are_few_and_even() -> None:
    for rows in range(1, 40):
        for most in range(1, 12):
            parts = equal_chunks(rows, most)
            sizes = [part.stop - part.start for part in parts]
            assert sum(sizes) == rows and max(sizes) <= most and max(sizes) - min(sizes) <= 1
            assert len(parts) == -(-rows // most) and [p.start for p in parts[1:]] == [p.stop for p in parts[:-1]]
    with pytest.raises(ValueError, match=facts("most 0")):
        equal_chunks(4, 0)
