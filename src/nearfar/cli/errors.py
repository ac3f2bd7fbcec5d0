"""An error in one line: its message if it was written for users, else its type, message and place."""

import linecache
import re
import signal
import sys
import sysconfig
import traceback
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_LIBRARIES = [Path(place).resolve() for place in {*map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))}]


def error_line(error: BaseException) -> str:
    """The place named is in the user's own code, if the error passed through it, else in this package."""
    message = " ".join(str(error).split())
    if is_out_of_memory(error):
        return f"memory is full ({message[:160] or type(error).__name__}); {_LESS_MEMORY}"
    frames = [(Path(frame.filename), frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    own = [frame for frame in frames if _is_users(frame[0])]
    expected = isinstance(error, OSError | ImportError) or not frames or _is_raised_here(*frames[-1])
    if message and not own and expected:
        return message
    here = [frame for frame in frames if _PACKAGE in frame[0].resolve().parents]
    file, line = (own or here or frames or [(Path("?"), 0)])[-1]
    text = " ".join(filter(None, (type(error).__name__, message)))
    return f"{text} in {_short_path(file)}, line {line}; --debug shows the traceback"


_LESS_MEMORY = (
    "make it less: a smaller --batch-size, --micro-batch-size, --image-size or --backbone; `nearfar plan` finds what "
    "fits; --debug shows the traceback"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Of Python, of a device, or of torch on a CPU, which says so by a RuntimeError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and bool(
        re.search(r"can't allocate memory|not enough memory|out of memory|DefaultCPUAllocator", str(error))
    )


def _is_users(file: Path) -> bool:
    """Whether a file is neither in this package nor in an installed one."""
    above = file.resolve().parents
    installed = any(place in above for place in _LIBRARIES) or {"site-packages", "dist-packages"} & set(file.parts)
    return file.is_file() and _PACKAGE not in above and not installed


def _is_raised_here(file: Path, line: int) -> bool:
    """Whether a `raise` in this package raised the error, with a message for users."""
    return _PACKAGE in file.resolve().parents and linecache.getline(str(file), line).strip().startswith("raise ")


def _short_path(file: Path) -> str:
    """Relative to the package or to the current folder, where it is in one of them."""
    for above in (_PACKAGE.parent, Path.cwd()):
        if above in file.resolve().parents:
            return file.resolve().relative_to(above).as_posix()
    return str(file)


def exit_status_of_stop(stop: KeyboardInterrupt) -> int:
    """Print what is left to say, and return 130 after Ctrl-C, 0 after SIGTERM: a scheduler starts the run again."""
    from nearfar.training.signals import TrainingStopped

    if not isinstance(stop, TrainingStopped):
        print("nearfar: interrupted", file=sys.stderr)
        return 130
    from nearfar.training.processes import is_rank_zero

    if not is_rank_zero():
        return 0  # rank 0 returns the status of the run
    print(f"run: {stop.folder}", flush=True)
    return 0 if stop.signal == signal.SIGTERM else 130


def is_printed_by_rank_zero(error: BaseException) -> bool:
    """Whether this process is another rank, and rank 0 has the same error."""
    from nearfar.training.errors import NotFiniteError, ProcessLostError

    if not isinstance(error, NotFiniteError | ProcessLostError):
        return False
    from nearfar.training.processes import is_rank_zero

    return not is_rank_zero()
