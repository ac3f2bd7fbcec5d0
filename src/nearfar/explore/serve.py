"""The application on a port: loopback by itself, a network with a token."""

import ipaddress
import logging
import socket
from collections.abc import Callable, Sequence

import uvicorn
from starlette.types import ASGIApp

from nearfar.explore.app import make_app
from nearfar.explore.guard import Door, Guard
from nearfar.explore.limits import Limits
from nearfar.explore.space import Run

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PORT = 8642


def guarded(
    runs: Sequence[Run],
    host: str,
    *,
    token: bool = False,
    allowed: Sequence[str] = (),
    limits: Limits | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> ASGIApp:
    """The application behind its guard.

    Args:
        runs: what is shown.
        host: what it is bound to. Elsewhere than on loopback a token is needed.
        token: need one on loopback, too, where others have accounts on this machine.
        allowed: more names under which it may be asked for, such as a proxy's.
        limits: of requests.
        tell: called with every token.
    """
    open_to_all = not is_loopback(host)
    own = [host, socket.gethostname(), socket.getfqdn()] if open_to_all else []
    door = Door(tell) if open_to_all or token else None
    return Guard(make_app(runs, limits=limits), hosts=[*LOOPBACK, *own, *allowed], addresses=open_to_all, door=door)


def serve(
    runs: Sequence[Run],
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    token: bool = False,
    allowed: Sequence[str] = (),
    tell: Callable[[str], None] = print,
) -> None:
    """Serve until Ctrl-C."""
    with bound(host, port) as listening:
        number = listening.getsockname()[1]
        shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
        address = f"http://{f'[{shown}]' if ':' in shown else shown}:{number}/"
        app = guarded(
            runs, host, token=token, allowed=allowed, tell=lambda t: tell(f"for one browser: {address}?token={t}")
        )
        if is_loopback(host) and not token:
            tell(f"explore: {address}")
        tell("Ctrl-C ends it")
        server(app).run(sockets=[listening])


class Server(uvicorn.Server):
    """Live views that are open end with it, and that is no error to tell of."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def server(app: ASGIApp) -> Server:
    """uvicorn, quiet, and with an end to what it takes."""
    return Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            http="h11",
            h11_max_incomplete_event_size=16 << 10,
            limit_concurrency=1000,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=1,
        )
    )


def bound(host: str, port: int) -> socket.socket:
    """A socket on that address, or a line that says why not."""
    if not 0 <= port < 2**16:
        raise ValueError(f"the port is {port}, expected from 0 (any that is free) to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)  # who asks before all is ready waits
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"{host} port {port} cannot be served on ({reason}); give another --port or --host") from None
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine can ask.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
