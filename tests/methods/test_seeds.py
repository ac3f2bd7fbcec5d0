"""Every draw of a method is a function of (seed, step): another seed draws others, the same seed the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nearfar.config import TrainConfig, completed
from nearfar.methods import CPC, METHODS, InstDisc, Method, MoCo, SimCSE
from nearfar.nn.bank import Bank
from nearfar.settings import build
from nearfar.training.build_method import build_method


def shuffle(method: Method) -> Tensor:
    assert isinstance(method, MoCo)
    seen: list[Tensor] = []

    def note(network: Any, x: Tensor, groups: int, order: Tensor) -> Tensor:
        seen.append(order)
        return x

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearfar.methods.moco.forward_in_groups", note)
        method._keys(torch.zeros(12, 3), 3)
    return seen[0]


def masks(method: Method) -> Tensor:
    assert isinstance(method, SimCSE) and method.masked_words is not None
    method.double().eval()
    return method._guess(method.masked_words, METHODS["simcse"].toy()[1][0])[1]


def positions(method: Method) -> Tensor:
    assert isinstance(method, CPC)
    return method._chosen(torch.ones(6, 20, dtype=torch.bool))


def noise(method: Method) -> Tensor:
    assert isinstance(method, InstDisc)
    return method.bank.noise(40)


def memories(method: Method) -> Tensor:
    assert isinstance(method, InstDisc)
    return method.bank.rows


DRAWS: dict[Callable[[Method], Tensor], tuple[str, dict[str, Any]]] = {
    shuffle: ("moco", {}),
    masks: ("simcse", {}),
    positions: ("cpc", {"positions": 5}),
    noise: ("instdisc", {}),
    memories: ("instdisc", {}),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "simcse": {"data": "lines.txt", "backbone": "text-micro", "options": {"mlm": 0.1}},
    "cpc": {"data": "waves", "options": {"positions": 5}},
    "moco": {"data": "photos/", "backbone": "micro", "options": {"queue_size": 8}},
    "instdisc": {"data": "photos/", "backbone": "micro"},
}


@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.__name__)
def test_the_seed_of_a_run_reaches_every_draw_of_its_method(draw: Callable[[Method], Tensor]) -> None:
    name, _ = DRAWS[draw]

    def drawn(seed: int, steps: int = 0) -> Tensor:
        config: TrainConfig = build(TrainConfig, completed({"method": name, "seed": seed, **SETTINGS[name]}), "test")
        method = build_method(config, samples=50)
        for _ in range(steps):
            method.after_step(0.0)
        return draw(method)

    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(4)) and not torch.equal(drawn(3), drawn(2**40))
    if draw is not memories:
        assert torch.equal(drawn(3, steps=2), drawn(3, steps=2)) and not torch.equal(drawn(3), drawn(3, steps=2))


@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.__name__)
def test_a_resumed_method_draws_on_where_it_was(draw: Callable[[Method], Tensor]) -> None:
    """Seed and step are all that a draw needs, and the step is in the state."""
    name, options = DRAWS[draw]
    kind = METHODS[name]

    def made() -> Method:
        method, _ = kind.toy()
        return kind(method.encoder, features=16, samples=64, **{**kind.toy_options, **options, "seed": 7})

    torch.manual_seed(0)
    going, resumed = made(), made()
    for _ in range(3):
        going.after_step(0.1)
    resumed.load_state_dict(going.state_dict())
    assert torch.equal(draw(going), draw(resumed))


def test_seed_0_draws_as_it_always_did() -> None:
    moco, _ = METHODS["moco"].toy()
    moco.after_step(0.0)
    assert torch.equal(shuffle(moco), torch.randperm(12, generator=torch.Generator().manual_seed(1)))
    expected = torch.randint(9, (30,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(Bank(9, 2).noise(30), expected)


@pytest.mark.parametrize("seed", [2**33, 2**63 - 1])
def test_a_bank_takes_every_seed_of_a_run(seed: int) -> None:
    bank = Bank(50, 2, seed=seed)
    assert torch.equal(bank.noise(40), Bank(50, 2, seed=seed).noise(40))
    assert not torch.equal(bank.noise(40), Bank(50, 2, seed=seed - 1).noise(40))


def test_an_option_seed_comes_first() -> None:
    config = TrainConfig(data="waves", method="cpc", backbone="cpc-series", seed=5, options={"seed": 2})
    method = build_method(config, samples=10)
    assert isinstance(method, CPC) and method.seed == 2
