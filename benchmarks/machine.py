"""The machine a benchmark ran on, in one line, and the memory a piece of work took on it."""

import os
import platform
from collections.abc import Callable
from pathlib import Path


def describe() -> str:
    """Processor, cores, memory, system and versions."""
    import torch

    processor = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        processor = names[0] if names else processor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{processor}, {os.cpu_count()} cores ({torch.backends.cpu.get_cpu_capability()}), {memory:.0f} GiB, "
        f"{platform.system()}, Python {platform.python_version()}, torch {torch.__version__}"
    )


def extra_memory(work: Callable[[], object]) -> float:
    """MiB by which `work` raises this process's resident memory at its peak. Linux only."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is resident now
    before = _status("VmRSS")
    work()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
