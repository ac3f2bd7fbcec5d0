"""YAML files of settings, guarded: no aliases, no deep nesting, no key twice, no more than 1 MB."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nearfar.messages import shown
from nearfar.safe_read import read_bytes

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
        counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if again := next((key for key, count in counts.items() if count > 1), None):
            fault = f"the key {shown(again)} is there twice"
            raise yaml.constructor.ConstructorError(None, None, fault, node.start_mark)
        return super().construct_mapping(node, deep)


def _number(loader: _Plain, node: Any) -> Any:
    """A number; 1:30:00 is a text, since YAML would read it to the base of 60, in time that grows with its square."""
    text = loader.construct_scalar(node)
    if ":" in text:
        return text
    is_int = node.tag.endswith(":int")
    return loader.construct_yaml_int(node) if is_int else loader.construct_yaml_float(node)


_Plain.add_constructor("tag:yaml.org,2002:int", _number)
_Plain.add_constructor("tag:yaml.org,2002:float", _number)


def read_yaml(path: Path) -> Mapping[Any, Any]:
    """Keys and values of a file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    content = read_bytes(path, _LARGEST)
    try:
        found = yaml.load(content.decode("utf-8"), _Plain)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: of a date or a number that is none
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(found, Mapping):
        raise ValueError(f"{path} holds a {type(found).__name__}, expected keys and values")
    return found
