"""Settings chosen from the data, the device and the time allowed: what was chosen, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from nearfar.devices import find_device
from nearfar.methods import Method
from nearfar.settings import overlaid
from nearfar.weights.packages import is_installed


@dataclass(frozen=True)
class Request:
    """What automatic settings are chosen for."""

    given: Mapping[str, Any]  # what the user asked for, sections as keys and values
    method: type[Method]

    @property
    def data(self) -> str:
        return str(self.given.get("data", {}).get("path", ""))

    @property
    def device(self) -> torch.device:
        return find_device(str(self.given.get("device", "auto")))

    @property
    def starts_from_weights(self) -> bool:
        text = self.given.get("text", {})
        return bool(self.given.get("pretrained") or self.given.get("weights") or text.get("weights"))

    @property
    def may_choose_weights(self) -> bool:
        """Whether the user left open what the network starts from: named neither weights nor a network."""
        text = self.given.get("text", {})
        named = ("weights", "pretrained", "backbone")
        return not any(name in self.given for name in named) and not {"weights", "encoder", "tokenizer"} & set(text)

    @property
    def processes(self) -> int:
        """Of the whole run, which share a batch."""
        return int(self.given.get("processes", 1)) * int(self.given.get("nodes", 1))

    def has_package(self, name: str) -> bool:
        """Whether weights that come as a package are installed."""
        return is_installed(name)

    @property
    def has_length(self) -> bool:
        """Whether the user said how long to train."""
        return any(name in self.given for name in ("epochs", "steps", "time"))


@dataclass(frozen=True)
class Automatic:
    """Settings, and a reason for each key that deserves one."""

    settings: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def choose(self, key: str, value: Any, reason: str = "") -> None:
        """Set a key, such as "optimizer.name", and say why."""
        *sections, name = key.split(".")
        inside = self.settings
        for section in sections:
            inside = inside.setdefault(section, {})
        inside[name] = value
        if reason:
            self.reasons[key] = reason

    def lay(self, settings: Mapping[str, Any]) -> None:
        """Add several settings at once, over those chosen before."""
        merged = overlaid(self.settings, settings)
        self.settings.clear()
        self.settings.update(merged)

    def notes(self, final: Mapping[str, Any]) -> list[str]:
        """A line for each choice that is in force, with its reason."""
        lines = []
        for key, reason in self.reasons.items():
            if _value(self.settings, key) == _value(final, key):
                lines.append(f"{key.replace('_', '-')} {_value(final, key)}: {reason}")
        return lines


def choose_precision(chosen: Automatic, device: torch.device) -> None:
    """bfloat16 where the hardware multiplies it: about 1.5 times as many steps per second on such a CPU."""
    if device.type == "cpu":
        features = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        if features.get("avx512_bf16") or features.get("amx_bf16"):
            chosen.choose("precision", "bf16", "this CPU multiplies bfloat16 faster")
    elif device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        chosen.choose("precision", "bf16", "this GPU multiplies bfloat16 faster")


def choose_adaptation(request: Request, chosen: Automatic, *, lr: float, taught: bool = False) -> None:
    """Settings of a run from given weights: small steps, and the start is what is kept if they make it no better.

    Args:
        lr: of AdamW, for the last of the given blocks.
        taught: by labels, scores or pairs, which know better than the start what is alike: the end is kept.
    """
    rates = request.given.get("optimizer", {})
    if "lr" not in rates:  # a rate is of the optimizer that its user knows
        chosen.lay({"optimizer": {"name": "adamw", "scale_lr": "none"}})
        chosen.choose("optimizer.lr", lr, "small steps, so that the start is not lost")
    chosen.choose("adapt.layer_decay", 0.75, "lower blocks, which are the most general, move less")
    chosen.choose("adapt.head_lr", 10.0)
    chosen.choose("adapt.head_warmup", 0.05)
    chosen.choose("adapt.batch_norm", "frozen")
    if not taught:
        chosen.choose("adapt.keep", "best", "the start stays if held-out samples without labels find it better")


def keep_better_start(chosen: Automatic) -> None:
    """A run from weights drawn at random keeps these if it ended clearly worse."""
    chosen.choose("adapt.keep", "best")


LARGEST_BATCH = 4096  # of several GPUs: what most papers used


def batch_on_gpus(request: Request, each: int, samples: int) -> int:
    """The batch of all GPUs, with so many samples for each."""
    return fitting_batch(min(each * request.processes, LARGEST_BATCH), samples)


def fitting_batch(usual: int, samples: int) -> int:
    """The usual batch size, or a power of two that makes at least two batches of fewer samples, or one of 8 or fewer.

    >>> fitting_batch(128, 5000), fitting_batch(128, 130), fitting_batch(128, 20), fitting_batch(128, 6)
    (128, 64, 8, 4)
    """
    half, whole = (1 << max(1, count).bit_length() >> 1 for count in (samples // 2, samples))  # at most so many
    return min(usual, max(min(8, whole), half, 2))


def _value(settings: Mapping[str, Any], key: str) -> Any:
    found: Any = settings
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
