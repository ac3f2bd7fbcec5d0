"""Reading that may fail for a moment, as over a network: tried again, after pauses that grow."""

import errno
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
PAUSES = (0.1, 0.4, 1.6)  # seconds before the second, third and fourth try
# What may be otherwise in a moment; a file that is not there, or not ours to read, is none of it.
PASSING = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "EINTR", "EBUSY", "ENFILE", "EMFILE", "EREMOTEIO", "ENOTCONN"),
        *("ECONNRESET", "ECONNABORTED", "ECONNREFUSED", "ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH"),
    )
    if hasattr(errno, name)
)


def retried(read: Callable[[], Result]) -> Result:
    """What `read` gives, if need be at the fourth try; an error that will not pass is raised at once.

    >>> retried(lambda: 7)
    7
    """
    for pause in PAUSES:
        try:
            return read()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            time.sleep(pause)
    return read()
