"""Shutdown of the host's service: every request that still waits is answered at once."""

import asyncio
from contextlib import suppress

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FIX = "start potluck host there again: machines and displays come back by themselves"


class Closing:
    """ASGI middleware: passes requests on until `close`, then answers waiting ones with 503, the host is ending."""

    def __init__(self, app: ASGIApp, machine: str) -> None:
        self._app = app
        self._machine = machine
        self._closed = asyncio.Event()

    def close(self) -> None:
        self._closed.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def notice(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        handling = asyncio.ensure_future(self._app(scope, receive, notice))
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait([handling, closing], return_when=asyncio.FIRST_COMPLETED)
            if handling.done() or has_begun:
                await handling
                return
        except asyncio.CancelledError:
            if not self._closed.is_set():
                raise
            return  # an answer that takes too long is cut off, and its reader notices that
        finally:
            closing.cancel()
            handling.cancel()
        with suppress(asyncio.CancelledError):
            await handling
        if not has_begun:
            answer = JSONResponse({"error": f"{self._machine} is ending its potluck host", "fix": _FIX}, 503)
            await answer(scope, receive, send)
