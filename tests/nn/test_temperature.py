import pytest
import torch

from nearfar.losses import nt_xent
from nearfar.nn.temperature import LogitScale, LogTemperature
from tests.support.facts import facts


@pytest.mark.parametrize("initial", [0.01, 0.07, 1.0, 100.0])
def test_value_starts_where_it_was_told_to(initial: float) -> None:
    assert LogTemperature(initial)().item() == pytest.approx(initial, rel=1e-6)
    assert LogitScale(initial)().item() == pytest.approx(initial, rel=1e-6)


def test_logit_scale_starts_and_ends_where_clips_does() -> None:
    scale = LogitScale()
    assert scale().item() == pytest.approx(1 / 0.07, rel=1e-6)
    with torch.no_grad():
        scale.log.fill_(50.0)
    assert scale().item() == pytest.approx(100.0, rel=1e-6)


def test_gradient_inside_the_bounds_is_that_of_the_exponential() -> None:
    temperature = LogTemperature(0.5)
    (3 * temperature()).backward()
    assert temperature.log.grad.item() == pytest.approx(3 * 0.5, rel=1e-6)


@pytest.mark.parametrize(("bound", "outward"), [(100.0, -1.0), (0.01, 1.0)])
def test_bound_drops_the_gradient_that_leads_out_and_keeps_the_one_that_leads_back(
    bound: float, outward: float
) -> None:
    for past in (0.0, 5.0):
        scale = LogitScale(bound)
        with torch.no_grad():
            scale.log.add_(past * -outward)
        (outward * scale()).backward()
        assert scale.log.grad.item() == 0.0
        scale.log.grad = None
        (-outward * scale()).backward()
        assert scale.log.grad.item() == pytest.approx(-outward * bound, rel=1e-5)


def test_one_number_is_learned_and_survives_a_round_trip() -> None:
    temperature = LogTemperature(0.2)
    assert [name for name, _ in temperature.named_parameters()] == ["log"]
    other = LogTemperature(0.9)
    other.load_state_dict(temperature.state_dict())
    assert other().item() == temperature().item()
    assert "0.2" in repr(temperature)


def test_temperature_learns_through_a_loss() -> None:
    """Twins already closest: a lower temperature lowers the loss, so descent must lower it."""
    z = torch.eye(4)
    temperature = LogTemperature(0.5)
    optimizer = torch.optim.SGD(temperature.parameters(), lr=0.1)
    before = nt_xent(z, z, temperature=temperature())
    before.backward()
    optimizer.step()
    assert temperature().item() < 0.5
    assert nt_xent(z, z, temperature=temperature()) < before


@pytest.mark.parametrize("kind", [LogTemperature, LogitScale])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"initial": 0.0}, "initial 0"),
        ({"initial": -1.0}, "initial -1"),
        ({"initial": float("nan")}, "initial nan"),
        ({"initial": 1.0, "low": 0.0}, "low 0"),
        ({"initial": 1.0, "high": float("inf")}, "high inf"),
        ({"initial": 200.0}, "initial 200 low=0.01 high=100"),
        ({"initial": 0.001}, "initial 0.001"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(
    kind: type[LogTemperature] | type[LogitScale], arguments: dict[str, float], words: str
) -> None:
    with pytest.raises(ValueError, match=facts(words)):
        kind(**arguments)


@pytest.mark.parametrize("module", [LogitScale(100.0), LogTemperature(0.01)])
def test_at_its_bound_it_may_be_called_twice_before_backward(module: LogitScale | LogTemperature) -> None:
    first, second = module(), module()
    (first + second).backward()
    value = float(module().detach())
    assert module.low <= value <= module.high


def test_carried_out_by_a_huge_step_it_is_back_at_once() -> None:
    scale = LogitScale()
    optimizer = torch.optim.SGD(scale.parameters(), lr=1e4)
    early = scale()
    (-early).backward()
    optimizer.step()
    assert float(scale().detach()) <= 100.0
    optimizer.zero_grad()
    scale().backward()
    optimizer.step()
    assert float(scale().detach()) < 100.0
