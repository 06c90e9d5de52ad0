"""Error answers of the host's service: each is one sentence and a fix, whatever was sent."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from potluck.core.errors import PotluckError
from potluck.meeting.host.credentials import OTHER_VERSION, refuse


def add_refusals(app: FastAPI) -> None:
    """Turn exceptions of request handlers into error answers."""
    app.add_exception_handler(PotluckError, _refuse)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _no_such_path)


async def _refuse(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PotluckError)
    return refuse(error)


async def _not_understood(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # Only the field's name: its value may be secret.
    where = ", ".join(".".join(str(part) for part in problem["loc"]) for problem in error.errors()[:3])
    return JSONResponse({"error": f"this host does not understand {where[:300]}", "fix": OTHER_VERSION}, 422)


async def _no_such_path(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail), "fix": OTHER_VERSION}, error.status_code)
