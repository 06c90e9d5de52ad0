"""What the host's service does not take: each refusal is one sentence and a fix, whatever was sent."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from potluck.core.errors import PotluckError
from potluck.core.version import __version__
from potluck.meeting.bundle import DEFAULT_LIMIT_BYTES
from potluck.meeting.door import NotProvenError, TooManyTriesError
from potluck.meeting.shipping import MAX_DELIVERY_BYTES

_MOST_JSON_BYTES = 4 << 20
_OTHER_VERSION = f"install the host's version: pip install potluck=={__version__}"


def add_refusals(app: FastAPI) -> None:
    """Errors become answers, and bodies that are too large are not read."""
    app.add_middleware(_BodyLimit)
    app.add_exception_handler(PotluckError, _refuse)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _no_such_path)


async def _refuse(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PotluckError)
    status = 401 if isinstance(error, NotProvenError) else 429 if isinstance(error, TooManyTriesError) else 400
    return JSONResponse({"error": error.args[0], "fix": error.fix}, status)


async def _not_understood(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # The place only: what was sent may be secret.
    where = ", ".join(".".join(str(part) for part in problem["loc"]) for problem in error.errors()[:3])
    return JSONResponse({"error": f"this host does not understand {where[:300]}", "fix": _OTHER_VERSION}, 422)


async def _no_such_path(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail), "fix": _OTHER_VERSION}, error.status_code)


class _BodyLimit:
    """Refuses bodies that are larger than their path needs, before they are read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            length = headers.get(b"content-length", b"0")
            most = _most_bytes(scope["path"])
            if b"transfer-encoding" in headers or not length.isdigit() or int(length) > most:
                answer = JSONResponse({"error": f"a body of at most {most} bytes is taken", "fix": _OTHER_VERSION}, 413)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _most_bytes(path: str) -> int:
    if path.startswith("/bundles/"):
        return DEFAULT_LIMIT_BYTES
    return max(MAX_DELIVERY_BYTES, _MOST_JSON_BYTES)
