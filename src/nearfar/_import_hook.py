"""`import torchvision` and `import timm` of a program that imported nearfar before work beside a CPU-only torch, too.

`import nearfar` imports no torch, so the operators that torchvision may lack (`nearfar._torchvision_operators`) cannot
be declared by it. They are declared at the moment at which the program imports torchvision.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


class _OperatorsFirst(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        operators = import_module("nearfar._torchvision_operators")
        super().exec_module(module)
        operators.allow_python_nms(module)


class _TorchvisionFinder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torchvision":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        spec.loader = _OperatorsFirst(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Once for a process, and only where torchvision is not imported already."""
    if "torchvision" not in sys.modules and _TorchvisionFinder not in sys.meta_path:
        sys.meta_path.insert(0, _TorchvisionFinder)
