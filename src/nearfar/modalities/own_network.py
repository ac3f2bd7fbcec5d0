"""A network of the user's own as the encoder of a run."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.python_objects import find_object


class OwnNetwork(nn.Module):
    """A network whose output is no matrix (B, F): feature maps are averaged, results of transformers are pooled.

    Args:
        network: x (B, ...) to a tensor (B, F, ...), a tuple that begins with one, or an object with `pooler_output` or
            `last_hidden_state`.
    """

    num_features: int

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return as_matrix(self.network(x))


def as_matrix(output: Any) -> Tensor:
    """(B, F) of what a network returns."""
    for name in ("pooler_output", "last_hidden_state"):
        if getattr(output, name, None) is not None:
            output = getattr(output, name)
            output = output.mean(1) if name == "last_hidden_state" and output.ndim == 3 else output
            break
    if isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor) or output.ndim not in (2, 4):
        what = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"type {type(output).__name__}"
        raise ValueError(f"the encoder's output has {what}, expected features (B, F) or feature maps (B, F, H, W)")
    return output if output.ndim == 2 else output.flatten(2).mean(2)


def own_network(spec: str, example: Tensor) -> nn.Module:
    """A copy of a registered network, as it was given, its output width in `num_features`.

    Args:
        spec: its name in the configuration.
        example: (2, ...) prepared input, to see what the network makes of it.
    """
    given = find_object(spec, "encoder")
    if not isinstance(given, nn.Module):
        raise TypeError(f"encoder is a {type(given).__name__}, expected a torch.nn.Module")
    network: nn.Module = copy.deepcopy(given).cpu()
    training = network.training
    try:
        with torch.no_grad():
            output = network.eval()(example)
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the encoder {type(given).__name__} does not take input of shape {tuple(example.shape)}: "
            f"{type(error).__name__}: {message}"
        ) from error
    network.train(training)
    features = as_matrix(output)
    if not (isinstance(output, Tensor) and output.ndim == 2):
        network = OwnNetwork(network)
    network.num_features = int(features.shape[1])  # type: ignore[assignment]
    return network.train()
