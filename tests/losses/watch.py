"""What torch does while a loss is computed: how many operations, and the largest tensor."""

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.losses.agreement import Function


class Watch(TorchDispatchMode):
    """Counts the operations torch carries out, and remembers the largest tensor any of them gave back."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.operations += 1
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                self.largest = max(self.largest, x.untyped_storage().nbytes() // x.element_size())
        return out


def watched(function: Function, *inputs: Tensor) -> Watch:
    """What a forward and a backward pass do."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    with Watch() as watch:
        function(*leaves).sum().backward()
    return watch
