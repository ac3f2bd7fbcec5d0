"""Which requests are answered: right Host and Origin, a token where the page is open to a network, a bounded body."""

import asyncio
import ipaddress
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearfar.explore.limits import Limits

COOKIE = "nearfar-explore"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class OneTimeTokens:
    """A token lets one browser in, once; that browser gets a cookie, and a new token is made.

    Args:
        notify: called with every new token.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify, self._cookie = notify, secrets.token_urlsafe(32)
        self._renew()

    def admit(self, token: str) -> str | None:
        """The cookie in exchange for the right token; None for a wrong one."""
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        self._renew()
        return self._cookie

    def accepts(self, cookie: str) -> bool:
        return secrets.compare_digest(cookie.encode(), self._cookie.encode())

    def _renew(self) -> None:
        self._token = secrets.token_urlsafe(32)
        self._notify(self._token)


class Guard:
    """ASGI middleware that checks Host, Origin and token, and adds security headers.

    Args:
        app: the application.
        hosts: allowed names in the Host header, against DNS rebinding.
        addresses: also allow every numeric address, which cannot be rebound.
        tokens: where a token is needed.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], addresses: bool = False, tokens: OneTimeTokens | None = None
    ) -> None:
        self.app, self.tokens, self.addresses = app, tokens, addresses
        self.hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets
            await send({"type": "websocket.close", "code": 1008})
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (self._instead_of_app(Request(scope)) or self.app)(scope, receive, sending)

    def _instead_of_app(self, request: Request) -> Response | None:
        """The refusal of a request, or the redirect of a browser that has the right token; None: the app answers."""
        problem = self._wrong_host(request.headers) or self._wrong_origin(request.headers, request.scope["path"])
        if problem is not None:
            return JSONResponse({"detail": problem[1]}, problem[0])
        if self.tokens is None or self.tokens.accepts(request.cookies.get(COOKIE, "")):
            return None
        token = request.query_params.get("token")
        cookie = self.tokens.admit(token) if request.scope["path"] == "/" and token else None
        if cookie is None:
            detail = "a token is needed: open the address that nearfar explore printed last"
            return JSONResponse({"detail": detail}, 401)
        stored = f"{COOKIE}={cookie}; HttpOnly; SameSite=Lax; Path=/"
        return Response(None, 303, {"location": "/", "set-cookie": stored})  # removes the token from the URL

    def _wrong_host(self, headers: Headers) -> tuple[int, str] | None:
        found = headers.getlist("host")
        name = host_name(found[0]) if len(found) == 1 else None
        if name is not None and (name in self.hosts or (self.addresses and ip_address(name) is not None)):
            return None
        return 400, f"the Host header is {', '.join(found)[:100]!r}, expected {' or '.join(sorted(self.hosts))}"

    def _wrong_origin(self, headers: Headers, path: str) -> tuple[int, str] | None:
        """Another site may only link to the page."""
        host = headers["host"].lower()
        for origin in headers.getlist("origin"):
            if origin.lower() not in (f"http://{host}", f"https://{host}"):
                return 403, f"the Origin is {origin[:100]!r}, expected this page's own"
        for site in headers.getlist("sec-fetch-site"):
            linked = path == "/" and headers.getlist("sec-fetch-mode") == ["navigate"]
            if site.lower() not in ("same-origin", "none") and not linked:
                return 403, f"the request comes from another site ({site[:20]}), expected this page's own"
        return None


class BodyLimit:
    """ASGI middleware: 413 for a body that has, or announces, too many bytes, 408 for one that takes too long, 503
    where all bodies together, or those of one address, are too many. A client that leaves ends its request without a
    word."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self._held: Counter[str] = Counter()  # bytes of bodies of requests that are not answered yet, by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, limits, client = Headers(scope=scope), self.limits, str((scope.get("client") or [""])[0])
        is_json = headers.get("content-type", "").lower().startswith("application/json")
        limit = limits.json if is_json and scope["path"] != "/api/export" else limits.upload
        length = headers.get("content-length", "")
        announced, received, more = int(length[:20]) if length.isdigit() else 0, 0, True
        deadline = asyncio.get_running_loop().time() + limits.body_seconds

        async def counted() -> Message:
            nonlocal received, more
            if announced > limit:
                raise HTTPException(413, f"the body has more than the limit of {limit:,} bytes")
            try:
                async with asyncio.timeout_at(deadline if more else None):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body took more than {limits.body_seconds:.0f} s") from None
            size = len(message.get("body", b""))
            received, more = received + size, bool(message.get("more_body"))
            self._held[client] += size
            if received > limit:
                raise HTTPException(413, f"the body has more than the limit of {limit:,} bytes")
            if self._held[client] > limits.client_bodies or self._held.total() > limits.bodies:
                raise HTTPException(503, "too many bodies are being received; try again", {"Retry-After": "1"})
            return message

        try:
            await self.app(scope, counted, send)
        except ClientDisconnect:
            return
        finally:
            self._held[client] -= received
            if not self._held[client]:
                del self._held[client]


def host_name(header: str) -> str | None:
    """The name in a Host header, without the port; None where the header is malformed.

    >>> host_name("LOCALHOST:8642"), host_name("[::1]:8642"), host_name("evil.example@127.0.0.1")
    ('localhost', '::1', None)
    """
    if not header or any(sign in header for sign in "@/\\?#, \t"):
        return None
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    return parts.hostname


def ip_address(name: str) -> IPv4Address | IPv6Address | None:
    """A numeric address; None where the name is not one."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
