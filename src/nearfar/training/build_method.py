"""The method of a run from its configuration."""

import copy
import math

import torch
from torch import nn

from nearfar.config import TrainConfig
from nearfar.messages import nearest_or_all
from nearfar.methods import Method, find_method
from nearfar.methods.anchored import AnchoredMethod
from nearfar.modalities import make_modality
from nearfar.nn.depthwise import quicken_depthwise
from nearfar.python_objects import registered
from nearfar.training.adaptation import freeze_pretrained, pretrained_parts


def build_method(config: TrainConfig, samples: int, *, untrained: bool = False) -> Method:
    """The method of a configuration before its first step; the same weights every time.

    Args:
        samples: of the training part.
        untrained: draw the encoder's weights also where the run begins with given ones.
    """
    kind = find_method(config.method)
    check_options(kind, config)
    if isinstance(given := registered(config.method), Method):
        made = copy.deepcopy(given)
        if not hasattr(made.encoder, "num_features"):
            made.encoder.num_features = make_modality(config).encoder().num_features
        return made
    torch.manual_seed(config.seed)
    modality = make_modality(config)
    encoder = modality.encoder(untrained=untrained)
    freeze_pretrained(encoder, config.adapt)  # before the method copies it
    features: int = encoder.num_features  # type: ignore[assignment]
    from_run = {"seed": config.seed, **modality.method_options()}
    options = {name: value for name, value in from_run.items() if name in kind.options()} | config.options
    try:
        return kind(encoder, features=features, samples=samples, **options)
    except TypeError as error:
        raise ValueError(f"{config.method} does not take these options: {error}") from None


def lay_out(network: nn.Module, config: TrainConfig) -> None:
    """Put the weights of a network into the layout that the settings ask for, the fastest for convolutions."""
    if config.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        quicken_depthwise(network)


def anchored(method: Method, config: TrainConfig) -> list[AnchoredMethod]:
    """The method with an anchor to the weights that it began with, if the settings have one and there are any."""
    if not config.adapt.anchor or not pretrained_parts(method.encoder):
        return []
    start = build_method(config, samples=2).encoder
    lay_out(start, config)
    return [AnchoredMethod(method, start, config.adapt.anchor)]


def check_options(kind: type[Method], config: TrainConfig) -> None:
    """Refuse options that the method does not have, a text for a number or a switch, and a temperature of 0 or less."""
    defaults = kind.options()
    for name, value in config.options.items():
        if name not in defaults:
            raise ValueError(f"{config.method} has no option {name!r}{nearest_or_all(str(name), set(defaults))}")
        default, number = defaults[name], isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(default, int | float) and not isinstance(default, bool) and not number:
            raise ValueError(f"--options.{name} is {value!r}, expected a number, such as {default:g}")
        if isinstance(default, bool) and not isinstance(value, bool):
            raise ValueError(f"--options.{name} is {value!r}, expected true or false")
        if name == "temperature" and number and not 0 < value < math.inf:
            raise ValueError(f"--options.{name} is {value:g}, expected above 0: it divides the similarities")


def untrained_encoder(config: TrainConfig) -> nn.Module:
    """The encoder of `build_method(..., untrained=True)`, without importing the method."""
    torch.manual_seed(config.seed)
    return make_modality(config).trained_encoder(untrained=True)
