"""The host's HTTPS service: every path but the version needs a credential, or a proof or key made of the token."""

import asyncio
import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import FileResponse

from potluck.core.errors import MeetingError
from potluck.core.version import __version__
from potluck.meeting.arrivals import CheckpointPart, newest_checkpoint, receive_checkpoint
from potluck.meeting.bundle import BundleCache
from potluck.meeting.door import Door, NotProvenError
from potluck.meeting.metrics import Metrics
from potluck.meeting.news import read_news
from potluck.meeting.point import MeetingPoint
from potluck.meeting.refusals import add_refusals
from potluck.meeting.shipping import receive
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
    VisitAnswer,
    VisitBegun,
    VisitQuestion,
)
from potluck.report.account_file import write_account
from potluck.report.prometheus import CONTENT_TYPE

_NEWS_LOOK_S = 0.2


def make_service(*, door: Door, point: MeetingPoint, bundles: BundleCache) -> FastAPI:
    """The service over a door and a meeting point."""
    app = FastAPI(title="Potluck host", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.door, app.state.point, app.state.bundles, app.state.metrics = door, point, bundles, Metrics()
    add_refusals(app)
    app.include_router(_doorway)
    app.include_router(_onlookers, dependencies=[Depends(_onlooker)])
    app.include_router(_members, dependencies=[Depends(_member)])
    return app


_doorway = APIRouter()
_onlookers = APIRouter()
_members = APIRouter()


async def _point(request: Request) -> MeetingPoint:
    point: MeetingPoint = request.app.state.point
    return point


async def _bundles(request: Request) -> BundleCache:
    bundles: BundleCache = request.app.state.bundles
    return bundles


async def _member(request: Request, authorization: Annotated[str, Header()] = "") -> str:
    """The machine that asks, by its credential."""
    door: Door = request.app.state.door
    address = _address(request)
    door.check_tries(address)
    machine, _, credential = authorization.removeprefix("Bearer ").partition(":")
    if not request.app.state.point.roster.knows(machine, credential):
        door.failures.failed(address)
        raise NotProvenError("this host does not know this machine", fix="join with the line that potluck host prints")
    return machine


async def _onlooker(request: Request, authorization: Annotated[str, Header()] = "") -> None:
    """A program with the metrics' own key, or a machine: nothing that reads needs to be let in as one that acts."""
    door: Door = request.app.state.door
    door.check_tries(_address(request))
    if not door.may_read_metrics(authorization.removeprefix("Bearer ")):
        await _member(request, authorization)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


Machine = Annotated[str, Depends(_member)]
Point = Annotated[MeetingPoint, Depends(_point)]
Bundles = Annotated[BundleCache, Depends(_bundles)]


# The way in


@_doorway.get("/version")
async def tell_version(request: Request) -> VersionAnswer:
    """The one question that anybody may ask."""
    door: Door = request.app.state.door
    return door.version()


@_doorway.post("/join")
async def let_in(request: Request, point: Point) -> JoinAnswer:
    """A machine with the token becomes one with a credential."""
    door: Door = request.app.state.door
    answer = door.join(await request.body(), request.headers.get(PROOF_HEADER, ""), _address(request))
    point.changes.tell()
    return answer


# For programs that watch


@_onlookers.get("/metrics")
async def tell_metrics(request: Request, point: Point) -> Response:
    """What Prometheus scrapes."""
    metrics: Metrics = request.app.state.metrics
    return Response(await metrics.tell(list(point.runs.values())), media_type=CONTENT_TYPE)


# What machines hear and say


@_members.post("/poll")
async def give_orders(asked: PollRequest, machine: Machine, point: Point) -> Orders:
    """What this machine should be doing, as soon as that is something else than it knows."""
    deadline = time.monotonic() + POLL_S
    point.heard(machine)
    while True:
        if machine not in point.roster.machines:  # it may have been removed while it waited
            raise NotProvenError("this machine was taken off the roster", fix="join again")
        orders = point.orders(machine)
        left_s = deadline - time.monotonic()
        if orders.digest != asked.known or left_s <= 0:
            return orders
        await point.changes.wait(left_s)


@_members.post("/report")
async def take_report(told: Report, machine: Machine, point: Point, request: Request) -> dict[str, bool]:
    """How a machine and its workers stand."""
    point.take(machine, told, _address(request))
    return {"taken": True}


@_members.post("/runs/{run}/files")
async def take_delivery(
    run: Name,
    request: Request,
    machine: Machine,
    point: Point,
    *,
    file: Annotated[str, Query(max_length=300)],
    offset: Annotated[int, Query(ge=0)],
) -> dict[str, int]:
    """Bytes of an event or log file, from where the host's copy ends."""
    folder = point.folder_of(run).path
    point.heard(machine)
    return {"size": receive(folder, file, offset, await request.body(), machine=machine)}


@_members.put("/runs/{run}/checkpoints/{file}")
async def take_checkpoint(
    run: Name,
    file: Name,
    request: Request,
    machine: Machine,
    point: Point,
    *,
    part: Annotated[CheckpointPart, Query()],
) -> dict[str, int]:
    """A part of a checkpoint."""
    point.heard(machine)
    keep = int((point.find_run(run).task.settings or {}).get("keep_checkpoints", 3))
    body = await request.body()
    size = await asyncio.to_thread(receive_checkpoint, point.folder_of(run), f"{machine}-{file}", part, body, keep)
    return {"size": size}


@_members.get("/runs/{run}/checkpoint")
async def give_checkpoint(run: Name, point: Point) -> Response:
    """The newest whole checkpoint."""
    newest = await asyncio.to_thread(newest_checkpoint, point.folder_of(run))
    if newest is None:
        raise MeetingError(f"run {run} has no checkpoint on the host", fix="start it anew, without --resume")
    return FileResponse(newest, filename=newest.name)


# The doctor's visits


@_members.post("/visits")
async def begin_visit(point: Point) -> VisitBegun:
    """The doctor wants to ask everyone who is here."""
    return point.visits.begin([record.name for record in point.unfinished()])


@_members.post("/visits/{visit}/questions")
async def ask_a_machine(visit: Name, asked: VisitQuestion, point: Point) -> VisitAnswer:
    """A question to a machine; its answer when it comes."""
    return await point.visits.ask(visit, asked)


@_members.post("/visits/{visit}/answers")
async def take_answer(visit: Name, told: VisitAnswer, machine: Machine, point: Point) -> dict[str, bool]:
    """What a machine answers."""
    point.heard(machine)
    point.visits.take(visit, machine, told)
    return {"taken": True}


@_members.post("/visits/{visit}/end")
async def end_visit(visit: Name, point: Point) -> dict[str, bool]:
    """Nothing more is asked: machines close what they opened."""
    point.visits.end(visit)
    return {"ended": True}


# Runs


@_members.put("/bundles/{digest}")
async def take_bundle(digest: Digest, request: Request, bundles: Bundles) -> dict[str, bool]:
    """A script's folder."""
    await asyncio.to_thread(bundles.put, digest, await request.body())
    return {"kept": True}


@_members.get("/bundles/{digest}")
async def give_bundle(digest: Digest, bundles: Bundles) -> Response:
    """A script's folder, for a machine that is to run it."""
    data = await asyncio.to_thread(bundles.get, digest)
    if data is None:
        raise MeetingError("this host does not have that bundle", fix="start the run again with: potluck run")
    return Response(data, media_type="application/octet-stream")


@_members.post("/runs")
async def start_run(asked: RunRequest, machine: Machine, point: Point) -> dict[str, Any]:
    """A run on everyone joined, or on some."""
    return point.describe(await point.start_run(asked, by=machine))


@_members.get("/runs/{run}")
async def show_run(run: Name, point: Point) -> dict[str, Any]:
    """Where a run stands."""
    return point.describe(point.find_run(run))


@_members.get("/runs/{run}/account")
async def show_account(run: Name, point: Point) -> dict[str, Any]:
    """Where a run's time went, as far as its events are here."""
    account = await asyncio.to_thread(write_account, point.folder_of(run))
    return {"account": None if account is None else account.as_data()}


@_members.post("/runs/{run}/stop")
async def stop_run(run: Name, point: Point) -> dict[str, Any]:
    """Stop a run after its step."""
    return point.describe(point.stop_run(run))


@_members.post("/runs/{run}/news")
async def give_news(run: Name, asked: NewsRequest, point: Point) -> dict[str, Any]:
    """What was written since, as soon as something was."""
    record = point.find_run(run)
    state, deadline = record.state, time.monotonic() + POLL_S
    while True:
        chunks = read_news(record.folder, asked.offsets)
        record = point.find_run(run)
        if chunks or record.state != state or record.has_ended or time.monotonic() > deadline:
            return {"chunks": [asdict(chunk) for chunk in chunks], "run": point.describe(record)}
        await asyncio.sleep(_NEWS_LOOK_S)


@_members.get("/status")
async def show_status(point: Point) -> dict[str, Any]:
    """Who is here, and what runs."""
    return point.status()


@_members.post("/machines/{name}/leave")
async def ask_to_leave(name: MachineName, point: Point) -> dict[str, Any]:
    """Take a machine off the roster."""
    point.ask_to_leave(name)
    return {"machine": name, "leaves": True}
