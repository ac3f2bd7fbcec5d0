"""What a bug report needs to know of a machine: versions, devices, threads. No paths, no names of users or hosts."""

import json
import os
import platform
import re
import sys
from importlib import metadata

from nearfar import __version__

VARIABLES = ("CUDA_VISIBLE_DEVICES", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def environment() -> dict[str, dict[str, str]]:
    """Sections of names and values: the system, the devices, the packages of the core and of each extra."""
    return {
        "nearfar": {
            "nearfar": __version__,
            "python": f"{platform.python_version()} ({platform.python_implementation()})",
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "devices": _devices(),
        **_packages(),
    }


def _devices() -> dict[str, str]:
    import torch

    from nearfar.devices import accelerator

    available = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    found = {"cores": f"{available} of {os.cpu_count()}", "threads of torch": str(torch.get_num_threads())}
    found |= {name: os.environ[name] for name in VARIABLES if name in os.environ}
    there = accelerator()
    found["accelerator"] = "none" if there is None else str(there.type)
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(number).total_memory / 2**30
            found[f"cuda:{number}"] = f"{torch.cuda.get_device_name(number)}, {memory:.0f} GB"
        found["CUDA of torch"] = str(torch.version.cuda)
    return found


def _packages() -> dict[str, dict[str, str]]:
    """The core's packages, then those of extras that are installed; an extra without any is "not installed"."""
    core: dict[str, str] = {}
    extras: dict[str, list[str]] = {}
    for requirement in metadata.requires("nearfar") or []:
        name = re.split(r"[^\w.-]", requirement)[0]
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if extra is None:
            core[name] = _version(name)
        elif name != "nearfar" and extra[1] not in ("all", "dev", "docs", "fuzz"):
            extras.setdefault(extra[1], []).append(f"{name} {_version(name)}")
    return {"packages": core, "extras": {name: ", ".join(found) for name, found in extras.items()}}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def shown_as_json(found: dict[str, dict[str, str]]) -> str:
    return json.dumps(found, indent=1)


def shown_as_lines(found: dict[str, dict[str, str]]) -> str:
    """A heading for each section, and a line for each value.

    >>> print(shown_as_lines({"devices": {"cores": "2 of 2"}}))
    devices
      cores  2 of 2
    """
    width = max(len(name) for section in found.values() for name in section)
    return "\n".join(
        line
        for heading, section in found.items()
        for line in (heading, *(f"  {name:<{width}}  {value}" for name, value in section.items()))
    )
