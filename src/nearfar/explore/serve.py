"""The application on a port: on loopback without a token, on a network with one."""

import logging
import socket
from collections.abc import Callable, Sequence

import uvicorn
from starlette.types import ASGIApp

from nearfar.explore.app import make_app
from nearfar.explore.connections import DeadlineProtocol
from nearfar.explore.guard import Guard, OneTimeTokens, ip_address
from nearfar.explore.limits import Limits
from nearfar.explore.space import ExploredRun

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PORT = 8642


def guarded_app(
    runs: Sequence[ExploredRun],
    host: str,
    *,
    token: bool = False,
    allowed: Sequence[str] = (),
    limits: Limits | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> ASGIApp:
    """The application behind its guard.

    Args:
        runs: what is shown.
        host: address to bind; a token is needed unless it is loopback.
        token: need one on loopback too, for machines with other users.
        allowed: more names for the Host header, such as a proxy's.
        limits: of requests.
        notify: called with every token.
    """
    public = not is_loopback(host)
    own = [host, socket.gethostname(), socket.getfqdn()] if public else []
    tokens = OneTimeTokens(notify) if public or token else None
    return Guard(make_app(runs, limits=limits), hosts=[*LOOPBACK, *own, *allowed], addresses=public, tokens=tokens)


def serve(
    runs: Sequence[ExploredRun],
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    token: bool = False,
    allowed: Sequence[str] = (),
    notify: Callable[[str], None] = print,
) -> None:
    """Serve until Ctrl-C; arguments as in `guarded_app`."""
    with bind(host, port) as listening:
        app, _ = announced_app(runs, listening, host=host, token=token, allowed=allowed, notify=notify)
        notify("Ctrl-C ends it")
        make_server(app).run(sockets=[listening])


def announced_app(
    runs: Sequence[ExploredRun],
    listening: socket.socket,
    *,
    host: str,
    token: bool,
    allowed: Sequence[str],
    notify: Callable[[str], None],
) -> tuple[ASGIApp, str]:
    """The application on a socket, and its address, which is told with its token if it needs one."""
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}/"

    def print_token(value: str) -> None:
        notify(f"open in one browser: {address}?token={value}")

    app = guarded_app(runs, host, token=token, allowed=allowed, notify=print_token)
    if is_loopback(host) and not token:
        notify(f"explore: {address}")
    return app, address


class QuietServer(uvicorn.Server):
    """Logs no errors for live views that are open at shutdown."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def make_server(app: ASGIApp) -> QuietServer:
    """uvicorn with bounds on what it accepts."""
    return QuietServer(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            http=DeadlineProtocol,
            h11_max_incomplete_event_size=16 << 10,
            limit_concurrency=1000,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=1,
        )
    )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or an error that names --port and --host."""
    if not 0 <= port < 2**16:
        raise ValueError(f"the port is {port}, expected from 0 (any free one) to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)  # early clients wait until the server is ready
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"cannot serve on {host} port {port} ({reason}); give another --port or --host") from None
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = ip_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)
