"""The protocols, one file each: its function, its settings, and what it needs of the data and of the encoder.

Adding one: a file with a `PROTOCOL` here, and its name in `_BUILT_IN`. From outside, MODULE:NAME names a `Protocol`.
"""

from dataclasses import field, make_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nearfar.evaluation.protocols.protocol import NoSettings, Protocol, SharedSettings
from nearfar.plugins import import_object

__all__ = ["PROTOCOLS", "Protocol", "ProtocolConfig", "find_protocol"]

_BUILT_IN = (
    "knn",
    "linear",
    "sgd",
    "finetune",
    "dtw",
    "frames",
    "retrieval",
    "verification",
    "clustering",
    "geometry",
    "detection",
    "ctc",
    "zero_shot",
    "captions",
    "similarity",
)
PROTOCOLS: dict[str, Protocol] = {name: import_module(f"{__name__}.{name}").PROTOCOL for name in _BUILT_IN}

if TYPE_CHECKING:

    class ProtocolConfig(SharedSettings):
        """Settings of all protocols: those they share, and by name each one's own."""

        def __init__(self, **settings: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    ProtocolConfig = make_dataclass(
        "ProtocolConfig",
        [
            (name, each.settings, field(default_factory=each.settings, metadata={"help": each.about}))
            for name, each in PROTOCOLS.items()
            if each.settings is not NoSettings
        ],
        bases=(SharedSettings,),
        frozen=True,
        namespace={"__doc__": "Settings of all protocols: those they share, and by name each one's own."},
    )


def find_protocol(name: str) -> Protocol:
    """The protocol of that name, or of MODULE:NAME, which may lie in the current folder."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    if ":" not in name:
        raise ValueError(f"there is no protocol {name!r}; known are {', '.join(PROTOCOLS)}")
    found = import_object(name, "protocol")
    if not isinstance(found, Protocol):
        raise ValueError(f"{name} is a {type(found).__name__}, expected a nearfar.evaluation.protocols.Protocol")
    return found
