"""A number in a buffer is read from the device once, and again only where somebody else changed it."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nearfar.nn.host_numbers import HostNumbers


class Counter(HostNumbers):
    host_numbers = ("steps", "rate")
    steps: Tensor
    rate: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor(3))
        self.register_buffer("rate", torch.tensor(0.1))


class _NoReading(TorchDispatchMode):
    def __init__(self, *buffers: Tensor) -> None:
        super().__init__()
        self.places = [x.data_ptr() for x in buffers]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].data_ptr() in self.places:
            raise AssertionError("a buffer was read")
        return func(*args, **(kwargs or {}))


@contextmanager
def unread(counter: Counter) -> Iterator[None]:
    with _NoReading(counter.steps, counter.rate):
        yield


def test_it_is_read_once() -> None:
    counter = Counter()
    with pytest.raises(AssertionError, match="read"), unread(counter):
        counter.number("steps")
    assert counter.number("steps") == 3
    with unread(counter):
        assert counter.number("steps") == 3
        counter.set_number("steps", 4)
        assert counter.number("steps") == 4
    assert int(counter.steps) == 4


def test_it_is_rounded_as_the_buffer_is() -> None:
    counter = Counter()
    counter.set_number("rate", 0.3)
    assert counter.number("rate") == counter.rate.item() != 0.3
    assert counter.half().number("rate") == counter.rate.item()


def test_what_others_changed_is_read_again() -> None:
    counter, other = Counter(), Counter()
    assert counter.number("steps") == 3
    other.set_number("steps", 9)
    counter.load_state_dict(other.state_dict())
    assert counter.number("steps") == 9
    counter.load_state_dict({"steps": torch.tensor(11), "rate": torch.tensor(0.5)}, assign=True)
    assert counter.number("steps") == 11 and counter.number("rate") == 0.5
    counter.steps += 1
    assert counter.number("steps") == 12
    twin = copy.deepcopy(counter)
    twin.set_number("steps", 1)
    assert counter.number("steps") == 12 and twin.number("steps") == 1


def test_it_survives_a_move_to_a_device_that_cannot_be_read() -> None:
    counter = Counter().to("meta")
    counter.set_number("steps", counter.number("steps") + 1)
    assert counter.number("steps") == 4
    back = counter.to_empty(device="cpu")
    back.load_state_dict({"steps": torch.tensor(7), "rate": torch.tensor(0.5)})
    assert back.number("steps") == 7
