"""Who may ask: the right Host and Origin and, where the page is open to a network, who has been let in by a token."""

import ipaddress
import json
import secrets
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlsplit

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


class Door:
    """A token that lets one browser in, once; that browser then has a cookie, and another token is told.

    Args:
        tell: called with every new token.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._cookie = tell, secrets.token_urlsafe(32)
        self._renew()

    def admit(self, token: str) -> str | None:
        """The cookie for who has the token, which is then spent; None for who has not."""
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        self._renew()
        return self._cookie

    def knows(self, cookie: str) -> bool:
        return secrets.compare_digest(cookie.encode(), self._cookie.encode())

    def _renew(self) -> None:
        self._token = secrets.token_urlsafe(32)
        self._tell(self._token)


class Guard:
    """An ASGI application around another.

    Args:
        app: what is guarded.
        hosts: names under which the page may be asked for; of a rebound name of someone else's there is none. Addresses
            in numbers cannot be rebound: with `addresses` all of them are right.
        door: where a token is needed.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], addresses: bool = False, door: Door | None = None
    ) -> None:
        self.app, self.door, self.addresses = app, door, addresses
        self.hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope)
        problem = self._wrong_host(headers) or self._wrong_origin(headers, scope["path"])
        if problem is not None:
            await _refuse(send, *problem)
            return
        if self.door is not None and not self._let_in(headers):
            token = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token", "")
            cookie = self.door.admit(token) if scope["path"] == "/" and token else None
            if cookie is None:
                await _refuse(send, 401, "a token is needed: open the address that nearfar explore printed last")
                return
            stored = f"{COOKIE}={cookie}; HttpOnly; SameSite=Lax; Path=/"
            await _answer(send, 303, b"", {"location": "/", "set-cookie": stored})  # the token leaves the address
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_encoded(HEADERS)]
            await send(message)

        await self.app(scope, receive, sending)

    def _wrong_host(self, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        found = headers.get("host", [])
        name = host_name(found[0]) if len(found) == 1 else None
        if name is not None and (name in self.hosts or (self.addresses and _is_address(name))):
            return None
        return 400, f"the Host header is {', '.join(found)[:100]!r}, expected {' or '.join(sorted(self.hosts))}"

    def _wrong_origin(self, headers: dict[str, list[str]], path: str) -> tuple[int, str] | None:
        """Another page may link here, and nothing else."""
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

    def _let_in(self, headers: dict[str, list[str]]) -> bool:
        assert self.door is not None
        for line in headers.get("cookie", []):
            try:
                found = SimpleCookie(line).get(COOKIE)
            except CookieError:
                continue
            if found is not None and self.door.knows(found.value):
                return True
        return False


def host_name(header: str) -> str | None:
    """The name in a Host header, without its port; None where it is no such header.

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


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
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
