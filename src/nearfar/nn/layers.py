"""The layers of any network from its input to its output, found by the names of its parameters."""

import re

from torch import nn


def layers(encoder: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters of an encoder from its input to its output, grouped into layers by their names.

    A layer is a part of the path up to the first numbered component (`blocks.3`, `layer2`), or the first component;
    parameters of one layer follow each other. A layer of norms alone, and what belongs to no module (a class token),
    joins the one before it; at the very beginning, the one after it.

    >>> [len(layer) for layer in layers(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)))]
    [4, 2]
    """
    found: list[tuple[str, list[nn.Parameter]]] = []
    for name, parameter in encoder.named_parameters():
        *path, _ = name.split(".")
        numbered = next((i for i, component in enumerate(path) if re.search(r"\d$", component)), 0)
        key = ".".join(path[: numbered + 1])
        if not found or found[-1][0] != key:
            found.append((key, []))
        found[-1][1].append(parameter)
    merged: list[list[nn.Parameter]] = []
    for i, (key, parameters) in enumerate(found):
        loose = key == "" or all(p.ndim <= 1 for p in parameters)
        if merged and (loose or (i == 1 and found[0][0] == "")):
            merged[-1] += parameters
        else:
            merged.append(parameters)
    return merged
