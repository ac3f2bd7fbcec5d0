"""Everything that needs float64 runs where the device has none: it goes to the CPU, and gives the same."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from nearfar import devices
from nearfar.evaluation import geometry
from nearfar.evaluation.linear import linear_probe
from nearfar.evaluation.logistic import fit_logistic
from nearfar.evaluation.protocols.retrieval import retrieval
from nearfar.evaluation.protocols.similarity import pair_cosines
from nearfar.losses import reference
from nearfar.methods.method import Step
from nearfar.training import health
from tests.support.no_float64 import NAME, Device, DeviceTensor, on_device


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    devices.WITHOUT_FLOAT64.add(NAME)
    with Device():
        yield
    devices.WITHOUT_FLOAT64.remove(NAME)


Z = torch.randn(3, 40, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 3
H = Z[0] + 2 * torch.eye(6)[LABELS]  # classes that can be told apart


def test_the_stand_in_refuses_float64_and_mixed_devices() -> None:
    x = on_device(Z[0])
    for wrong in (lambda: x.double(), lambda: x.sum(dtype=torch.float64), lambda: torch.ones(2, device=NAME).double()):
        with pytest.raises(TypeError, match="float64"):
            wrong()
    with pytest.raises(RuntimeError, match="same device"):
        x + Z[1]
    assert isinstance(x @ x.T, DeviceTensor) and not isinstance(x.cpu(), DeviceTensor)


@pytest.mark.parametrize("name", reference.DEFINITIONS)
def test_losses_and_gradients(name: str) -> None:
    loss, _, call = reference.DEFINITIONS[name]
    found = []
    for place in (Tensor.clone, on_device):
        z1, z2 = (place(z[:12]).requires_grad_() for z in Z[:2])
        value = call(loss, z1, z2, place(torch.tensor(0.2)))
        value.sum().backward()
        found.append([x.detach().cpu() for x in (value, z1.grad, z2.grad) if x is not None])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def twice(look: Callable[..., object], *inputs: Tensor) -> None:
    """The same on the CPU and on the device."""
    expected, found = look(*inputs), look(*map(on_device, inputs))
    found = tree_map(lambda x: x.cpu() if isinstance(x, Tensor) else x, found)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, check_dtype=True)


LOOKS: dict[str, Callable[..., object]] = {
    "alignment": lambda: twice(geometry.alignment, Z[0], Z[1]),
    "uniformity": lambda: twice(geometry.uniformity, Z[0]),
    "effective_rank": lambda: twice(geometry.effective_rank, Z[0]),
    "deviation": lambda: twice(geometry.deviation, Z[0]),
    "histograms": lambda: twice(lambda *z: tuple(geometry.similarity_histograms(*z)), Z[0], Z[1]),
    "spectrum": lambda: twice(geometry.covariance_spectrum, Z[0]),
    "lidar": lambda: twice(geometry.lidar, Z.transpose(0, 1)),
    "neighborhood": lambda: twice(lambda z, y: geometry.neighborhood(z, y, k=3).purity, Z[0], LABELS),
    "hubness": lambda: twice(lambda z: geometry.neighborhood(z, k=3).hubness, Z[0]),
    "retrieval": lambda: twice(lambda z, y: tuple(retrieval(z, y)), H, LABELS),
    "cosines": lambda: twice(pair_cosines, Z[0], Z[1]),
    "logistic": lambda: twice(lambda z, y: fit_logistic(z, y, classes=3, c=1.0), H, LABELS),
    "refined": lambda: twice(lambda z, y: fit_logistic(z, y, classes=3, c=1.0, refine=True), H, LABELS),
    "probe": lambda: twice(lambda z, y: linear_probe(z, y, classes=3)(z).argmax(1), H, LABELS),
}


@pytest.mark.parametrize("name", LOOKS)
def test_evaluation(name: str) -> None:
    LOOKS[name]()


def test_the_look_at_a_run() -> None:
    def look(z1: Tensor, z2: Tensor) -> dict[str, object]:
        return dict(health.measure(Step(loss=(z1 - z2).square().mean(), z1=z1, z2=z2, candidates=40)))

    twice(look, Z[0], Z[1])
