"""How good are the embeddings? Protocols, splits, results, and the one path from an encoder and data to numbers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported when first used: metrics alone need no more than torch
    from nearfar.evaluation.protocols import PROTOCOLS as PROTOCOLS
    from nearfar.evaluation.protocols import Protocol as Protocol
    from nearfar.evaluation.protocols import ProtocolConfig as ProtocolConfig
    from nearfar.evaluation.results import Results as Results
    from nearfar.evaluation.results import Row as Row

__all__ = ["PROTOCOLS", "Protocol", "ProtocolConfig", "Results", "Row"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'results' if name in ('Results', 'Row') else 'protocols'}"), name)
