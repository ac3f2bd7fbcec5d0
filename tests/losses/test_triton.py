"""The fused kernels by Triton's interpreter: values and gradients are those of the reference in float64.

`tests/conftest.py` turns the interpreter on, since Triton looks for it when it is first imported.
"""

import subprocess
import sys
from itertools import product

import pytest
import torch
from torch import Tensor

from nearfar import losses
from nearfar.losses import reference, use_engine
from nearfar.losses.engine.backends import has_triton
from tests.losses.agreement import assert_near, number, rows, value_and_gradients
from tests.losses.watch import Watch
from tests.support.facts import facts

if not has_triton():
    pytest.skip("triton is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # the interpreter's log of 0


def assert_fused_equals(function: object, definition: object, *inputs: Tensor, tolerance: float = 1e-5) -> None:
    """Values to the tolerance, gradients to ten times that, of float32 against the definition in float64."""
    assert callable(function) and callable(definition)
    expected = value_and_gradients(definition, *(x.double() for x in inputs))
    with use_engine("triton"):
        found = value_and_gradients(function, *inputs)
    assert found[0].dtype == torch.float32
    for factor, a, b in zip((1, *[10] * len(inputs)), found, expected, strict=True):
        assert_near(a, b, factor * tolerance)


SHAPES = [
    (1, 1, 1),
    (5, 33, 3),
    (40, 70, 17),
    (32, 33, 260),
]  # rows, keys, features: below, above and at a block's side
IDS = ("none", "own", "classes", "one")


def ids_of(kind: str, n: int, m: int) -> tuple[Tensor | None, Tensor | None]:
    """Of "classes" some rows have no key that is excluded; of "one" the first row has none that is counted."""
    if kind == "none":
        return None, None
    if kind == "own":
        return torch.arange(n), torch.arange(m)
    if kind == "classes":
        return torch.arange(n) % 7, torch.arange(m) % 5
    return torch.cat([torch.zeros(1), torch.ones(n - 1)]).long(), torch.zeros(m).long()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("ids", IDS)
def test_both_ways_and_a_learned_scale(shape: tuple[int, int, int], ids: str) -> None:
    n, m, d = shape
    query_ids, key_ids = ids_of(ids, n, m)
    for temperature in (0.02, 1.0) if d == 17 else (0.2,):
        scale = number(1 / (temperature * d)).float()

        def both(loss: object, q: Tensor, k: Tensor, s: Tensor) -> Tensor:
            assert callable(loss)
            found = torch.cat(loss(q, k, scale=s, query_ids=query_ids, key_ids=key_ids))
            return found.masked_fill(found.isneginf(), 0.0)

        query, keys = rows(n, d, dtype=torch.float32), rows(m, d, seed=1, dtype=torch.float32)
        assert_fused_equals(
            lambda *x: both(losses.similarity_logsumexp_two_way, *x),
            lambda *x: both(reference.similarity_logsumexp_two_way, *x),
            query,
            keys,
            scale,
        )


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("bias", [0.0, -30.0])
def test_the_sum_of_softplus(ids: str, bias: float) -> None:
    n, m, d = 40, 35, 20
    query_ids, key_ids = ids_of(ids, n, m)

    def own(loss: object, q: Tensor, k: Tensor, s: Tensor, b: Tensor) -> Tensor:
        assert callable(loss)
        return loss(q, k, scale=s, bias=b, query_ids=query_ids, key_ids=key_ids) * torch.tensor(-bias).exp()

    inputs = rows(n, d, dtype=torch.float32), rows(m, d, seed=1, dtype=torch.float32)
    assert_fused_equals(
        lambda *x: own(losses.similarity_softplus_sum, *x),
        lambda *x: own(reference.similarity_softplus_sum, *x),
        *inputs,
        torch.tensor(0.5),
        torch.tensor(bias),
    )


LOSSES = ("nt_xent", "symmetric_info_nce", "info_nce", "sup_con", "sigmoid_pairs", "guided_info_nce", "nt_xent_views")


@pytest.mark.parametrize("name", LOSSES)
def test_losses_know_nothing_of_it(name: str) -> None:
    loss, definition, call = reference.DEFINITIONS[name]
    inputs = rows(20, 9, dtype=torch.float32), rows(20, 9, seed=1, dtype=torch.float32), torch.tensor(0.1)
    assert_fused_equals(lambda *x: call(loss, *x).mean(), lambda *x: call(definition, *x).mean(), *inputs)


TYPES = list(product((torch.float32, torch.bfloat16, torch.float16), ("exact", "tf32", "bf16")))


@pytest.mark.parametrize(("dtype", "precision"), TYPES, ids=str)
def test_types_and_precisions(dtype: torch.dtype, precision: str) -> None:
    """What was rounded before is exact; else the error is that of rounded factors, at both engines."""
    query, keys = rows(40, 20).to(dtype), rows(35, 20, seed=1).to(dtype)
    ids = ids_of("classes", 40, 35)
    expected = value_and_gradients(
        lambda q, k: reference.similarity_logsumexp(q, k, 0.5, *ids), query.double(), keys.double()
    )
    bits = {"exact": 24, "tf32": 11, "bf16": 8}[precision]
    given = {torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}[dtype]
    for engine in ("tiles", "triton"):
        with use_engine(engine, precision=precision):  # type: ignore[arg-type]
            found = value_and_gradients(
                lambda q, k: losses.similarity_logsumexp(q, k, scale=0.5, query_ids=ids[0], key_ids=ids[1]),
                query,
                keys,
            )
        assert_near(found[0], expected[0], 1e-5 if given <= bits else 2.0 ** (2 - bits))
        for a, b in zip(found[1:], expected[1:], strict=True):
            assert_near(a, b, 1e-5 + 2.0 ** (2 - min(bits, given)))


def test_no_memory_for_the_matrix_and_half_the_tiles_of_rows_with_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    from nearfar.losses.engine import triton_kernels, triton_sums

    z = rows(200, 4, dtype=torch.float32).requires_grad_()
    with use_engine("triton"), Watch() as watch:
        losses.similarity_logsumexp(z, z, scale=1.0).sum().backward()
    assert watch.largest <= 200 * 200 / 3  # the interpreter's copies of rows, as bytes
    computed: list[bool] = []
    original = triton_sums._tile_sums

    def counted(*args: object) -> object:
        computed.append(bool(args[2]))
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(triton_sums, "_tile_sums", counted)
    with use_engine("triton"):
        losses.nt_xent(z[:40], z[40:80], temperature=0.5)
    assert computed == [True] and triton_kernels.tile_sums is not None


def test_panels_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from nearfar.losses.engine import triton_sums

    monkeypatch.setattr(triton_sums, "_PANEL", 32)
    query, keys = rows(70, 5, dtype=torch.float32), rows(50, 5, seed=1, dtype=torch.float32)
    assert_fused_equals(
        lambda q, k: torch.cat(losses.similarity_logsumexp_two_way(q, k, scale=1.0)),
        lambda q, k: torch.cat(reference.similarity_logsumexp_two_way(q, k, 1.0)),
        query,
        keys,
    )
    ids = torch.arange(70) % 60
    assert_fused_equals(
        lambda q: losses.similarity_logsumexp(q, q, scale=1.0, query_ids=ids, key_ids=ids),
        lambda q: reference.similarity_logsumexp(q, q, 1.0, ids, ids),
        query,
    )


def test_compiled_and_differentiated_twice() -> None:
    torch._dynamo.reset()
    z1, z2 = rows(2, 12, 5, dtype=torch.float32).unbind()

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return losses.nt_xent(a, b, temperature=0.2)

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    expected = value_and_gradients(loss, z1, z2)
    with use_engine("triton"):
        for a, b in zip(value_and_gradients(compiled, z1, z2), expected, strict=True):
            assert_near(a, b, 1e-5)
        found = torch.func.hessian(loss)(z1, z2)
    assert_near(found, torch.autograd.functional.hessian(lambda a: loss(a, z2.double()), z1.double()), 1e-4)


def test_what_it_does_not_take_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from nearfar.losses.engine import backends, triton_sums

    z = rows(4, 3)
    with use_engine("triton"), pytest.raises(TypeError, match=facts("float64 tiles")):
        losses.nt_xent(z, z, temperature=0.5)
    monkeypatch.setattr(triton_sums, "INTERPRETED", False)
    with use_engine("triton"), pytest.raises(ValueError, match=facts("cpu tiles")):
        losses.nt_xent(z.float(), z.float(), temperature=0.5)
    monkeypatch.setattr(backends, "has_triton", lambda: False)
    with pytest.raises(ImportError, match=facts("triton tiles")) as refused, use_engine("triton"):
        pass
    assert "\n" not in str(refused.value)


def test_nothing_imports_triton_before_it_is_used() -> None:
    code = "import sys, torch, nearfar.losses as losses\nz = torch.randn(300, 4)\n"
    code += "losses.nt_xent(z, z, temperature=0.5)\nassert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
