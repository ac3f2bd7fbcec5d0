"""Bodies of requests, as long as they are not too long."""

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Bounded:
    """An ASGI application whose bodies end: 413 as soon as more than `limit` bytes are announced, or there."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        stated = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        announced = int(stated[:20]) if stated.isdigit() else 0
        there = 0

        async def counted() -> Message:
            nonlocal there
            if announced > self.limit:
                raise HTTPException(413, f"the body has {announced:,} bytes, more than the limit of {self.limit:,}")
            message = await receive()
            there += len(message.get("body", b""))
            if there > self.limit:
                raise HTTPException(413, f"the body has more bytes than the limit of {self.limit:,}")
            return message

        await self.app(scope, counted, send)
