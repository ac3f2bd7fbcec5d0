"""YAML files of settings, guarded: no aliases, no deep nesting, no key twice, no more than 1 MB."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nearfar.messages import shown

_LARGEST = 1 << 20  # bytes


class _Plain(yaml.SafeLoader):  # type: ignore[misc]
    """YAML of plain values: ten lines of aliases can stand for a billion values, and brackets be nested without end."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        fault = "aliases (*name) have no place in a configuration" if self.check_event(yaml.AliasEvent) else ""
        fault = "it is nested too deeply" if self.depth > 32 else fault
        if fault:
            raise yaml.composer.ComposerError(None, None, fault, self.peek_event().start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if again := next((key for place, key in enumerate(keys) if key in keys[:place]), None):
            fault = f"the key {shown(again)} is there twice"
            raise yaml.constructor.ConstructorError(None, None, fault, node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Mapping[Any, Any]:
    """Keys and values of a file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes, expected a configuration of at most 1 MB")
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Plain)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: of a date or a number that is none
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(found, Mapping):
        raise ValueError(f"{path} holds a {type(found).__name__}, expected keys and values")
    return found
