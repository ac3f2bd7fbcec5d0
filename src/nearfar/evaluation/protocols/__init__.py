"""The protocols, one file each: its function, its settings, and what it needs of the data and of the encoder.

Adding one: a file with a `PROTOCOL` here, and its name in `_BUILT_IN`. From outside, MODULE:NAME names a `Protocol`.
"""

from collections.abc import Iterable
from dataclasses import field, make_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nearfar.evaluation.protocols.protocol import NoSettings, Protocol, SharedSettings
from nearfar.plugins import import_object

__all__ = ["PROTOCOLS", "Protocol", "ProtocolConfig", "find_protocol", "protocol_config"]

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


def _section(protocol: Protocol) -> tuple[str, type[Any], Any]:
    """A field with a protocol's settings, for `make_dataclass`."""
    return protocol.name, protocol.settings, field(default_factory=protocol.settings, metadata={"help": protocol.about})


if TYPE_CHECKING:

    class ProtocolConfig(SharedSettings):
        """Settings of all protocols: those they share, and by name each one's own."""

        def __init__(self, **settings: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    ProtocolConfig = make_dataclass(
        "ProtocolConfig",
        [_section(each) for each in PROTOCOLS.values() if each.settings is not NoSettings],
        bases=(SharedSettings,),
        frozen=True,
        namespace={"__doc__": "Settings of all protocols: those they share, and by name each one's own."},
    )


def protocol_config(protocols: Iterable[str]) -> type[ProtocolConfig]:
    """`ProtocolConfig` with the settings of those protocols, too, that are named as MODULE:NAME."""
    outside = {found.name: found for found in map(find_protocol, protocols) if found.name not in PROTOCOLS}
    more = [_section(each) for each in outside.values() if each.settings is not NoSettings]
    for name, *_ in more:
        if not name.isidentifier():
            expected = "expected a name of letters, digits and _, which its flags begin with"
            raise ValueError(f"the protocol {name!r} has settings, {expected}")
    if not more:
        return ProtocolConfig
    doc = {"__doc__": ProtocolConfig.__doc__}
    return make_dataclass("ProtocolConfig", more, bases=(ProtocolConfig,), frozen=True, namespace=doc)


def find_protocol(name: str) -> Protocol:
    """The protocol of that name, or of MODULE:NAME, which may lie in the current folder."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    if ":" not in name:
        raise ValueError(f"there is no protocol {name!r}; known are {', '.join(PROTOCOLS)}")
    found = import_object(name, "protocol")
    if not isinstance(found, Protocol):
        raise ValueError(f"{name} is a {type(found).__name__}, expected a nearfar.evaluation.protocols.Protocol")
    if found.name in PROTOCOLS:
        raise ValueError(f"{name} has the name {found.name!r} of a built-in protocol; give it another name")
    return found
