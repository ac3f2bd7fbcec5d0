"""Where projects name the tensors of the same network otherwise: name by name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

_LUKEMELAS = {  # of a block, by the number of its batch norms: timm's names to those of lukemelas' EfficientNet
    2: {"conv_dw": "_depthwise_conv", "bn1": "_bn1", "conv_pw": "_project_conv", "bn2": "_bn2"},
    3: {
        "conv_pw": "_expand_conv",
        "bn1": "_bn0",
        "conv_dw": "_depthwise_conv",
        "bn2": "_bn1",
        "conv_pwl": "_project_conv",
        "bn3": "_bn2",
    },
}
_SQUEEZE = {"se.conv_reduce": "_se_reduce", "se.conv_expand": "_se_expand"}


@dataclass(frozen=True)
class Naming:
    """How a project names the tensors of a network.

    Attributes:
        label: of the naming, for messages; empty: the network's own.
        names: from the network's names to the project's.
        convert: a tensor by the network's name from the project's values to the network's, if they differ.
    """

    label: str
    names: Mapping[str, str]
    convert: Callable[[str, Tensor], Tensor] | None = None


def namings(network: nn.Module) -> Iterator[Naming]:
    """All known ways to name the tensors of a network, its own first.

    A network of ours states further ones itself, in its method `foreign_namings`.
    """
    names = list(network.state_dict())
    yield Naming("", {name: name for name in names})
    yield from getattr(network, "foreign_namings", tuple)()
    if type(network).__name__ in ("ResNet", "EfficientNet", "MobileNetV3"):
        yield Naming("an nn.Sequential", _numbered(network, [name for name, _ in network.named_children()]))
        weighted = [name for name, child in network.named_children() if child.state_dict()]
        for plain in ({name: name for name in names}, _numbered(network, weighted)):
            shortcuts = {name: their.replace(".downsample.", ".shortcut.") for name, their in plain.items()}
            yield Naming("lightly's ResNet", shortcuts)
    if hasattr(network, "conv_stem") and hasattr(network, "blocks"):
        yield Naming("lukemelas' EfficientNet", _lukemelas(network))


def _numbered(network: nn.Module, children: list[str]) -> dict[str, str]:
    """Names as `nn.Sequential(*network.children())` has them: "4.0.conv1.weight" for "layer1.0.conv1.weight"."""
    numbers = {name: str(number) for number, name in enumerate(children)}
    split = ((name, *name.partition(".")) for name in network.state_dict())
    return {name: numbers[first] + dot + rest for name, first, dot, rest in split if first in numbers}


def _lukemelas(network: nn.Module) -> dict[str, str]:
    """Blocks in one row, and a block's layers by what they do."""
    outside = {"conv_stem": "_conv_stem", "bn1": "_bn0", "conv_head": "_conv_head", "bn2": "_bn1"}
    blocks: list[tuple[str, nn.Module]] = [
        (f"blocks.{stage}.{number}", block)
        for stage, row in network.blocks.named_children()  # type: ignore[union-attr]
        for number, block in row.named_children()
    ]
    inside: dict[str, str] = dict(outside)
    for count, (place, block) in enumerate(blocks):
        norms = sum(name.startswith("bn") for name, _ in block.named_children())
        for own, their in {**_LUKEMELAS.get(norms, {}), **_SQUEEZE}.items():
            inside[f"{place}.{own}"] = f"_blocks.{count}.{their}"
    found = {}
    for name in network.state_dict():
        module, _, tensor = name.rpartition(".")
        if module in inside:
            found[name] = f"{inside[module]}.{tensor}"
    return found
