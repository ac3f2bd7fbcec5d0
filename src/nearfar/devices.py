"""The device to compute on."""

import torch


def find_device(name: str) -> torch.device:
    """The device of that name, or for "auto" the best there is."""
    if name != "auto":
        try:
            torch.zeros(1, device=name)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = " ".join(str(error).split()).partition(". ")[0]
            if "device type at start of device string" in reason:
                reason = "torch knows none of that name"  # torch would list twenty that are not here either
            raise ValueError(f"there is no device {name!r} here ({reason}); leave it out, or use cpu") from None
        return torch.device(name)
    return accelerator() or torch.device("cpu")


def accelerator() -> torch.device | None:
    """The accelerator of this machine, such as cuda; None without one. Torch 2.6 names that of its build otherwise."""
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


WITHOUT_FLOAT64 = {"mps"}  # kinds of devices


def in_float64(x: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, on its device; on the CPU where the device has none.

    >>> in_float64(torch.ones(1)).dtype
    torch.float64
    """
    return x.to("cpu", torch.float64) if x.device.type in WITHOUT_FLOAT64 else x.double()
