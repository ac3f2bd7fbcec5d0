"""Which requests are answered: right Host and Origin, a token where the page is open to a network, a bounded body."""

import ipaddress
import json
import secrets
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlsplit

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
Headers = dict[str, list[str]]


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
        headers = _headers(scope)
        problem = self._wrong_host(headers) or self._wrong_origin(headers, scope["path"])
        if problem is not None:
            await _refuse(send, *problem)
            return
        if self.tokens is not None and not self._has_cookie(headers, self.tokens):
            token = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token", "")
            cookie = self.tokens.admit(token) if scope["path"] == "/" and token else None
            if cookie is None:
                await _refuse(send, 401, "a token is needed: open the address that nearfar explore printed last")
                return
            stored = f"{COOKIE}={cookie}; HttpOnly; SameSite=Lax; Path=/"
            await _answer(send, 303, b"", {"location": "/", "set-cookie": stored})  # removes the token from the URL
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_encoded(HEADERS)]
            await send(message)

        await self.app(scope, receive, sending)

    def _wrong_host(self, headers: Headers) -> tuple[int, str] | None:
        found = headers.get("host", [])
        name = host_name(found[0]) if len(found) == 1 else None
        if name is not None and (name in self.hosts or (self.addresses and _is_address(name))):
            return None
        return 400, f"the Host header is {', '.join(found)[:100]!r}, expected {' or '.join(sorted(self.hosts))}"

    def _wrong_origin(self, headers: Headers, path: str) -> tuple[int, str] | None:
        """Another site may only link to the page."""
        host = headers["host"][0].lower()
        for origin in headers.get("origin", []):
            parts = origin.lower().split("://", 1)
            if len(parts) != 2 or parts[0] not in ("http", "https") or parts[1] != host:
                return 403, f"the Origin is {origin[:100]!r}, expected this page's own"
        for site in headers.get("sec-fetch-site", []):
            linked = path == "/" and headers.get("sec-fetch-mode") == ["navigate"]
            if site.lower() not in ("same-origin", "none") and not linked:
                return 403, f"the request comes from another site ({site[:20]}), expected this page's own"
        return None

    @staticmethod
    def _has_cookie(headers: Headers, tokens: OneTimeTokens) -> bool:
        for line in headers.get("cookie", []):
            try:
                found = SimpleCookie(line).get(COOKIE)
            except CookieError:
                continue
            if found is not None and tokens.accepts(found.value):
                return True
        return False


class BodyLimit:
    """ASGI middleware: 413 as soon as a body has, or announces, more than `limit` bytes."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        stated = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        received = 0

        async def counted() -> Message:
            nonlocal received
            if stated.isdigit() and int(stated[:20]) > self.limit:
                raise HTTPException(413, f"the body has more than the limit of {self.limit:,} bytes")
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.limit:
                raise HTTPException(413, f"the body has more than the limit of {self.limit:,} bytes")
            return message

        await self.app(scope, counted, send)


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


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _headers(scope: Scope) -> Headers:
    found: Headers = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _refuse(send: Send, status: int, detail: str) -> None:
    await _answer(send, status, json.dumps({"detail": detail}).encode(), {"content-type": "application/json"})


async def _answer(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    headers = {**HEADERS, **headers, "content-length": str(len(body))}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
