"""The host's HTTPS service: every path but the version needs a machine's credential or a proof of the token."""

import asyncio
import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from potluck.core.errors import MeetingError, PotluckError
from potluck.core.version import __version__
from potluck.meeting.arrivals import newest_checkpoint, receive_checkpoint
from potluck.meeting.bundle import DEFAULT_LIMIT_BYTES, BundleCache
from potluck.meeting.door import Door, NotProven, TooManyTries
from potluck.meeting.news import read_news
from potluck.meeting.point import MeetingPoint
from potluck.meeting.shipping import MAX_DELIVERY_BYTES, receive
from potluck.meeting.wire import (
    POLL_S,
    PROOF_HEADER,
    Digest,
    JoinAnswer,
    MachineName,
    Name,
    NewsRequest,
    Orders,
    PollRequest,
    Report,
    RunRequest,
    VersionAnswer,
)

_NEWS_LOOK_S = 0.2
_MOST_JSON_BYTES = 4 << 20
_OTHER_VERSION = f"install the host's version: pip install potluck=={__version__}"


def make_service(*, door: Door, point: MeetingPoint, bundles: BundleCache) -> FastAPI:
    """The service over a door and a meeting point."""
    app = FastAPI(title="Potluck host", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(_BodyLimit)
    app.add_exception_handler(PotluckError, _refuse)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _no_such_path)

    def member(request: Request, authorization: Annotated[str, Header()] = "") -> str:
        """The machine that asks, by its credential."""
        address = request.client.host if request.client else ""
        door.check_tries(address)
        machine, _, credential = authorization.removeprefix("Bearer ").partition(":")
        if not point.roster.knows(machine, credential):
            door.failures.failed(address)
            raise NotProven("this host does not know this machine", fix="join with the line that potluck host prints")
        return machine

    member_of = Annotated[str, Depends(member)]

    @app.get("/version")
    async def version() -> VersionAnswer:
        return door.version()

    @app.post("/join")
    async def join(request: Request) -> JoinAnswer:
        address = request.client.host if request.client else ""
        answer = await door.join(await request.body(), request.headers.get(PROOF_HEADER, ""), address)
        point.changes.tell()
        return answer

    @app.post("/poll")
    async def poll(asked: PollRequest, machine: member_of) -> Orders:
        deadline = time.monotonic() + POLL_S
        while True:
            # Asked anew each time: the machine may have been removed while it waited.
            if machine not in point.roster.machines:
                raise NotProven("this machine was taken off the roster", fix="join again")
            point.heard(machine)
            orders = point.orders(machine)
            left_s = deadline - time.monotonic()
            if orders.digest != asked.known or left_s <= 0:
                return orders
            await point.changes.wait(left_s)

    @app.post("/report")
    async def report(told: Report, machine: member_of) -> dict[str, bool]:
        point.take(machine, told)
        return {"taken": True}

    @app.post("/runs/{run}/files")
    async def ship(
        run: Name, request: Request, machine: member_of, file: str = Query(max_length=300), offset: int = Query(ge=0)
    ) -> dict[str, int]:
        folder = point.folder_of(run).path
        point.heard(machine)
        return {"size": receive(folder, file, offset, await request.body(), machine=machine)}

    @app.put("/runs/{run}/checkpoints/{file}")
    async def keep_checkpoint(  # noqa: PLR0917
        run: Name,
        file: Name,
        request: Request,
        machine: member_of,
        offset: int = Query(ge=0),
        total: int = Query(ge=0),
        sha256: Digest = Query(),
    ) -> dict[str, int]:
        record = point.find_run(run)
        point.heard(machine)
        body = await request.body()
        size = await asyncio.to_thread(
            receive_checkpoint, point.folder_of(run), machine, file, offset, total, sha256, body, _num_kept(record.task)
        )
        return {"size": size}

    @app.get("/runs/{run}/checkpoint")
    async def get_checkpoint(run: Name, machine: member_of) -> Response:
        newest = newest_checkpoint(point.folder_of(run))
        if newest is None:
            raise MeetingError(f"run {run} has no checkpoint on the host", fix="start it anew, without --resume")
        return FileResponse(newest, filename=newest.name)

    @app.put("/bundles/{digest}")
    async def put_bundle(digest: Digest, request: Request, machine: member_of) -> dict[str, bool]:
        await asyncio.to_thread(bundles.put, digest, await request.body())
        return {"kept": True}

    @app.get("/bundles/{digest}")
    async def get_bundle(digest: Digest, machine: member_of) -> Response:
        data = await asyncio.to_thread(bundles.get, digest)
        if data is None:
            raise MeetingError("this host does not have that bundle", fix="start the run again with: potluck run")
        return Response(data, media_type="application/octet-stream")

    @app.post("/runs")
    async def start_run(asked: RunRequest, machine: member_of) -> dict[str, Any]:
        return point.describe(await point.start_run(asked, by=machine))

    @app.get("/runs/{run}")
    async def show_run(run: Name, machine: member_of) -> dict[str, Any]:
        return point.describe(point.find_run(run))

    @app.post("/runs/{run}/stop")
    async def stop_run(run: Name, machine: member_of) -> dict[str, Any]:
        return point.describe(point.stop_run(run))

    @app.post("/runs/{run}/news")
    async def news(run: Name, asked: NewsRequest, machine: member_of) -> dict[str, Any]:
        record = point.find_run(run)
        state, deadline = record.state, time.monotonic() + POLL_S
        while True:
            chunks = read_news(record.folder, asked.offsets)
            record = point.find_run(run)
            if chunks or record.state != state or record.has_ended or time.monotonic() > deadline:
                return {"chunks": [asdict(chunk) for chunk in chunks], "run": point.describe(record)}
            await asyncio.sleep(_NEWS_LOOK_S)

    @app.get("/status")
    async def status(machine: member_of) -> dict[str, Any]:
        return point.status()

    @app.post("/machines/{name}/leave")
    async def leave(name: MachineName, machine: member_of) -> dict[str, Any]:
        point.ask_to_leave(name)
        return {"machine": name, "leaves": True}

    return app


def _num_kept(task: Any) -> int:
    return int((task.settings or {}).get("keep_checkpoints", 3))


async def _refuse(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PotluckError)
    status = 401 if isinstance(error, NotProven) else 429 if isinstance(error, TooManyTries) else 400
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
            is_chunked = b"transfer-encoding" in headers
            if is_chunked or not length.isdigit() or int(length) > most:
                answer = JSONResponse({"error": f"a body of at most {most} bytes is taken", "fix": _OTHER_VERSION}, 413)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _most_bytes(path: str) -> int:
    if path.startswith("/bundles/"):
        return DEFAULT_LIMIT_BYTES
    return max(MAX_DELIVERY_BYTES, _MOST_JSON_BYTES)
