"""An error in one line: what the package says of it, or else what it is and where it happened."""

import linecache
import sysconfig
import traceback
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_LIBRARIES = [Path(place).resolve() for place in {*map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))}]


def in_a_line(error: BaseException) -> str:
    """The message where it was written to be read, else type, message and place, one's own code before ours."""
    words = " ".join(str(error).split())
    frames = [(Path(frame.filename), frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    own = [frame for frame in frames if _is_own(frame[0])]
    if words and not own and (isinstance(error, OSError | ImportError) or not frames or _raised_here(*frames[-1])):
        return words
    here = [frame for frame in frames if _PACKAGE in frame[0].resolve().parents]
    file, line = (own or here or frames or [(Path("?"), 0)])[-1]
    said = " ".join(filter(None, (type(error).__name__, words)))
    return f"{said} in {_named(file)}, line {line}; --debug shows the traceback"


def _is_own(file: Path) -> bool:
    """Whether it is neither ours nor of an installed package: what the user wrote."""
    above = file.resolve().parents
    installed = any(place in above for place in _LIBRARIES) or {"site-packages", "dist-packages"} & set(file.parts)
    return file.is_file() and _PACKAGE not in above and not installed


def _raised_here(file: Path, line: int) -> bool:
    """Whether a line of ours raised it on purpose, with words for the user."""
    return _PACKAGE in file.resolve().parents and linecache.getline(str(file), line).strip().startswith("raise ")


def _named(file: Path) -> str:
    """Ours by their place in the package, others from the current folder where they are in it."""
    for above in (_PACKAGE.parent, Path.cwd()):
        if above in file.resolve().parents:
            return file.resolve().relative_to(above).as_posix()
    return str(file)
