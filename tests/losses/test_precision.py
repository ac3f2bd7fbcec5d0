"""Products of similarities are exact whatever torch is set to, and rounded only where that was asked for."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nearfar import losses
from nearfar.losses import reference, use_engine
from nearfar.losses.engine.precision import rounded
from tests.losses.agreement import rows, value_and_gradients
from tests.support.facts import facts


@pytest.fixture
def medium() -> Iterator[None]:
    """What Lightning recommends on GPUs with tensor cores; it is heard on CPUs, too."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # as it was
    torch.set_float32_matmul_precision(before)


class Products(TorchDispatchMode):
    """Which precision torch was set to at each matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("mm", "addmm", "addmm_", "bmm", "baddbmm"):
            self.allowed.add(torch.backends.mkldnn.matmul.fp32_precision)
        return func(*args, **(kwargs or {}))


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="torch before 2.9 rounds on CUDA alone")
@pytest.mark.parametrize("engine", ["auto", "tiles", "dense"])
@pytest.mark.parametrize(
    "name", ["nt_xent", "symmetric_info_nce", "sigmoid_pairs", "top_k_info_nce", "guided_info_nce"]
)
def test_settings_of_torch_are_not_heard(name: str, engine: Any, medium: None) -> None:
    loss, _, call = reference.DEFINITIONS[name]
    z1, z2 = (rows(130, 8, seed=i, dtype=torch.float32).requires_grad_() for i in range(2))
    with use_engine(engine), Products() as products:
        call(loss, z1, z2, torch.tensor(0.1)).mean().backward()
    assert products.allowed == {"ieee"}


def gradient(loss: Callable[..., Tensor]) -> Tensor:
    z1, z2 = rows(2, 40, 8, dtype=torch.float32).unbind()
    return value_and_gradients(lambda a, b: loss(a, b, temperature=0.1), z1, z2)[1]


def test_rounding_grows_with_the_precision_asked_for() -> None:
    exact = gradient(losses.nt_xent)
    for precision, low, high in (("exact", 0.0, 1e-6), ("tf32", 1e-5, 1e-3), ("bf16", 1e-3, 1e-2)):
        with use_engine(precision=precision):  # type: ignore[arg-type]
            error = float((gradient(losses.nt_xent) - exact).norm() / exact.norm())
        assert low <= error < high, (precision, error)


def test_float64_is_always_exact() -> None:
    z1, z2 = rows(2, 40, 8).unbind()
    with use_engine("tiles", precision="bf16"):
        found = losses.nt_xent(z1, z2, temperature=0.1)
    torch.testing.assert_close(found, losses.nt_xent(z1, z2, temperature=0.1), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("precision", "bits"), [("tf32", 11), ("bf16", 8)])
def test_rounding_is_to_the_nearest(precision: str, bits: int) -> None:
    x = torch.cat([rows(1000, dtype=torch.float32), torch.tensor([0.0, torch.inf, -torch.inf, 2.0**100, 1e-30])])
    mantissa, exponent = torch.frexp(x.double())
    expected = torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent).float()
    torch.testing.assert_close(rounded(x, precision), expected, rtol=0, atol=0)


def test_engines_nest_and_end() -> None:
    from nearfar.losses.engine.backends import current_backend, current_engine

    with use_engine("dense", precision="bf16"):
        with use_engine("tiles"):
            assert current_engine() == ("tiles", "bf16") and current_backend() is None
        assert current_backend() is not None
    assert current_engine() == ("auto", "exact") and current_backend() is None


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match=facts("engine cuda tiles triton dense")), use_engine("cuda"):  # type: ignore[arg-type]
        pass
    with pytest.raises(ValueError, match=facts("precision fp8 exact tf32 bf16")), use_engine(precision="fp8"):  # type: ignore[arg-type]
        pass
