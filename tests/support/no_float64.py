"""A device that has no float64, as Apple's MPS: a stand-in whose tensors have values, which a CPU computes."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "meta"  # autograd serves it without a driver
MAY_MIX = ("index", "index_put", "index_put_", "_index_put_impl_", "_to_copy", "copy_")  # with tensors on the CPU


class DeviceTensor(Tensor):
    """A tensor that says it is on the device; its values are on the CPU."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "DeviceTensor":
        shape = values.size(), values.stride(), values.storage_offset()
        found: DeviceTensor = Tensor._make_wrapper_subclass(cls, *shape, dtype=values.dtype, device=NAME)
        found.values = values
        return found

    def __repr__(self, **_: Any) -> str:
        return f"DeviceTensor({self.values})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class Device(TorchDispatchMode):
    """Within it, what is made on the device `NAME` has values, and nothing there may be float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    own = [x for x in given if isinstance(x, DeviceTensor)]
    name = func.overloadpacket.__name__
    if own and name not in MAY_MIX and any(not isinstance(x, DeviceTensor) and x.ndim for x in given):
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, found {NAME} and cpu")
    if any(x.is_meta and not isinstance(x, DeviceTensor) for x in given):
        raise NotImplementedError(
            f"{name}: the stand-in has lost the values of a tensor: torch.tensor or a list made it"
        )
    asked = kwargs.get("device")
    here = bool(own) if asked is None else torch.device(asked).type == NAME
    here = isinstance(args[0], DeviceTensor) if name == "copy_" else here
    if asked is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}

    def unwrap(x: Any) -> Any:
        return x.values if isinstance(x, DeviceTensor) else x

    out = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs))

    def wrap(x: Any) -> Any:
        for other in own:
            if other.values is x:
                return other
        if not isinstance(x, Tensor) or not here:
            return x
        if x.dtype == torch.float64:
            raise TypeError(f"{name}: cannot convert a tensor on {NAME} to float64, which the device does not have")
        return DeviceTensor(x)

    return tree_map(wrap, out)


def on_device(x: Tensor) -> Tensor:
    """A leaf on the device with the values of x."""
    return DeviceTensor(x.detach().clone())
