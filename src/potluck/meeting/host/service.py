"""The host's HTTP service: every path but /version needs a credential, or a proof or key derived from the token."""

import asyncio
import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import FileResponse

from potluck.core.errors import MeetingError
from potluck.core.run_folder import RunFolder
from potluck.core.version import __version__
from potluck.meeting.host.admission import Door, NotProvenError
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.credentials import CALLER, ONLOOKER, Admission
from potluck.meeting.host.metrics import Metrics
from potluck.meeting.host.refusals import add_refusals
from potluck.meeting.transfer.arrivals import CheckpointPart, newest_checkpoint, receive_checkpoint
from potluck.meeting.transfer.bundle import BundleCache
from potluck.meeting.transfer.run_tail import lengths, read_news
from potluck.meeting.transfer.shipping import receive
from potluck.meeting.wire import (
    POLL_S,
    PROOF_HEADER,
    Digest,
    JoinAnswer,
    MachineName,
    Name,
    NewsRequest,
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


def make_service(*, door: Door, coordinator: Coordinator, bundles: BundleCache) -> FastAPI:
    """The service as a FastAPI application."""
    app = FastAPI(title="Potluck host", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.door, app.state.coordinator, app.state.bundles, app.state.metrics = door, coordinator, bundles, Metrics()
    app.add_middleware(Admission, door=door, coordinator=coordinator)
    add_refusals(app)
    app.include_router(_doorway)
    app.include_router(_onlookers, dependencies=[Depends(_onlooker)])
    app.include_router(_members, dependencies=[Depends(_member)])
    return app


_doorway = APIRouter()
_onlookers = APIRouter()
_members = APIRouter()


async def _coordinator(request: Request) -> Coordinator:
    coordinator: Coordinator = request.app.state.coordinator
    return coordinator


async def _bundles(request: Request) -> BundleCache:
    bundles: BundleCache = request.app.state.bundles
    return bundles


async def _member(request: Request) -> str:
    """The machine that sent the request, known by its credential; refuses a caller that is no machine."""
    machine: str = request.scope.get(CALLER, ONLOOKER)
    if machine == ONLOOKER:
        raise NotProvenError("this host does not know this machine", fix="join with the line that potluck host prints")
    return machine


async def _onlooker(request: Request) -> None:
    """Admit a machine, or a program with the metrics key: to read metrics, no machine's credential is needed."""
    if CALLER not in request.scope:
        raise NotProvenError("this host does not know this program", fix="give it the key in metrics-key")


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


Machine = Annotated[str, Depends(_member)]
CoordinatorDep = Annotated[Coordinator, Depends(_coordinator)]
Bundles = Annotated[BundleCache, Depends(_bundles)]


# Joining


@_doorway.get("/version")
async def tell_version(request: Request) -> VersionAnswer:
    """The only path that needs neither a credential nor a proof: version, clock and a challenge."""
    door: Door = request.app.state.door
    return door.version()


@_doorway.post("/join")
async def let_in(request: Request, coordinator: CoordinatorDep) -> JoinAnswer:
    """Admit a machine that proves the token, and give it a credential."""
    door: Door = request.app.state.door
    answer = await door.join(await request.body(), request.headers.get(PROOF_HEADER, ""), _address(request))
    coordinator.changes.tell()
    return answer


# For programs that watch


@_onlookers.get("/metrics")
async def tell_metrics(request: Request, coordinator: CoordinatorDep) -> Response:
    """What Prometheus scrapes."""
    metrics: Metrics = request.app.state.metrics
    return Response(await metrics.tell(list(coordinator.state.runs.values())), media_type=CONTENT_TYPE)


# Orders for machines, and their reports and files


@_members.post("/poll")
async def give_orders(asked: PollRequest, machine: Machine, coordinator: CoordinatorDep) -> Response:
    """Long poll: the machine's `Orders`, as soon as they differ from those that it knows."""
    deadline = time.monotonic() + POLL_S
    coordinator.heard(machine)
    while True:
        if machine not in coordinator.roster.machines:  # it may have been removed while its poll waited
            raise NotProvenError(
                "this machine was taken off the roster", fix="join with the line that potluck host prints"
            )
        orders = coordinator.orders(machine)
        left_s = deadline - time.monotonic()
        if orders.digest != asked.known:
            pause_s = coordinator.shared.pause_s(machine, asked.known, orders)
            if pause_s <= 0 or left_s <= 0:
                return Response(coordinator.shared.encoded(machine, orders), media_type="application/json")
            left_s = min(left_s, pause_s)
        elif left_s <= 0:
            return Response(orders.unchanged().model_dump_json(), media_type="application/json")
        await coordinator.changes.wait(left_s)


@_members.post("/report")
async def take_report(told: Report, machine: Machine, coordinator: CoordinatorDep, request: Request) -> dict[str, bool]:
    """Take a machine's report of itself and its workers."""
    coordinator.take(machine, told, _address(request))
    return {"taken": True}


@_members.post("/runs/{run}/files")
async def take_delivery(
    run: Name,
    request: Request,
    machine: Machine,
    coordinator: CoordinatorDep,
    *,
    file: Annotated[str, Query(max_length=300)],
    offset: Annotated[int, Query(ge=0)],
) -> dict[str, int]:
    """Append bytes of an event or log file to the host's copy; answers with the copy's size."""
    folder = coordinator.state.find_run(run).folder
    coordinator.heard(machine)
    return {"size": receive(folder, file, offset, await request.body(), machine=machine)}


@_members.put("/runs/{run}/checkpoints/{file}")
async def take_checkpoint(
    run: Name,
    file: Name,
    request: Request,
    machine: Machine,
    coordinator: CoordinatorDep,
    *,
    part: Annotated[CheckpointPart, Query()],
) -> dict[str, int]:
    """Take a part of a checkpoint; answers with how many bytes the host has."""
    coordinator.heard(machine)
    keep = int((coordinator.state.find_run(run).task.settings or {}).get("keep_checkpoints", 3))
    body = await request.body()
    size = await asyncio.to_thread(
        receive_checkpoint, RunFolder(coordinator.state.find_run(run).folder), f"{machine}-{file}", part, body, keep
    )
    return {"size": size}


@_members.get("/runs/{run}/checkpoint")
async def give_checkpoint(run: Name, coordinator: CoordinatorDep) -> Response:
    """The run's newest undamaged checkpoint."""
    newest = await asyncio.to_thread(newest_checkpoint, RunFolder(coordinator.state.find_run(run).folder))
    if newest is None:
        raise MeetingError(f"run {run} has no checkpoint on the host", fix="start it anew, without --resume")
    return FileResponse(newest, filename=newest.name)


# The doctor's visits


@_members.post("/visits")
async def begin_visit(coordinator: CoordinatorDep) -> VisitBegun:
    """Open a visit: questions to all present machines that train."""
    return coordinator.visits.begin([record.name for record in coordinator.state.unfinished()])


@_members.post("/visits/{visit}/questions")
async def ask_a_machine(visit: Name, asked: VisitQuestion, coordinator: CoordinatorDep) -> VisitAnswer:
    """Relay a question to a machine, and answer with the machine's answer."""
    return await coordinator.visits.ask(visit, asked)


@_members.post("/visits/{visit}/answers")
async def take_answer(visit: Name, told: VisitAnswer, machine: Machine, coordinator: CoordinatorDep) -> dict[str, bool]:
    """Take a machine's answer to a question."""
    coordinator.heard(machine)
    coordinator.visits.take(visit, machine, told)
    return {"taken": True}


@_members.post("/visits/{visit}/end")
async def end_visit(visit: Name, coordinator: CoordinatorDep) -> dict[str, bool]:
    """End a visit: machines close what they have opened for it."""
    coordinator.visits.end(visit)
    return {"ended": True}


# Runs


@_members.put("/bundles/{digest}")
async def take_bundle(digest: Digest, request: Request, bundles: Bundles) -> dict[str, bool]:
    """Store a script's bundle."""
    await asyncio.to_thread(bundles.put, digest, await request.body())
    return {"kept": True}


@_members.get("/bundles/{digest}")
async def give_bundle(digest: Digest, bundles: Bundles) -> Response:
    """A script's bundle, for a machine that is to run the script."""
    data = await asyncio.to_thread(bundles.get, digest)
    if data is None:
        raise MeetingError("this host does not have that bundle", fix="start the run again with: potluck run")
    return Response(data, media_type="application/octet-stream")


@_members.put("/catalogues/{digest}")
async def take_catalogue(digest: Digest, request: Request, coordinator: CoordinatorDep) -> dict[str, bool]:
    """Store the list of a shared folder's files."""
    await asyncio.to_thread(coordinator.data.catalogues.put, digest, await request.body())
    return {"kept": True}


@_members.get("/catalogues/{digest}")
async def give_catalogue(digest: Digest, coordinator: CoordinatorDep) -> Response:
    """The list of a shared folder's files, for a machine that gets the folder."""
    content = await asyncio.to_thread(coordinator.data.catalogues.get, digest)
    return Response(content, media_type="application/octet-stream")


@_members.put("/states")
async def take_state(
    request: Request, machine: Machine, coordinator: CoordinatorDep, *, part: Annotated[CheckpointPart, Query()]
) -> dict[str, int]:
    """Take a part of the checkpoint file that a run is to begin with; answers with how many bytes the host has."""
    coordinator.heard(machine)
    return {"size": await asyncio.to_thread(coordinator.states.receive, part, await request.body())}


@_members.post("/runs")
async def start_run(asked: RunRequest, machine: Machine, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Start a run on all joined machines, or on some of them."""
    record = await coordinator.start_run(asked, by=machine)
    # No machine has its orders yet: everything in the run's files is from earlier starts.
    written = lengths(record.folder)
    return {**await coordinator.describe(record), "written": written}


@_members.get("/runs/{run}")
async def show_run(run: Name, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Describe a run."""
    return await coordinator.describe(coordinator.state.find_run(run))


@_members.get("/runs/{run}/account")
async def show_account(run: Name, coordinator: CoordinatorDep) -> dict[str, Any]:
    """The run's account, from the events that have arrived."""
    account = await asyncio.to_thread(write_account, RunFolder(coordinator.state.find_run(run).folder))
    return {"account": None if account is None else account.as_data()}


@_members.post("/runs/{run}/stop")
async def stop_run(run: Name, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Stop a run after its step."""
    return await coordinator.describe(coordinator.stop_run(run))


@_members.post("/runs/{run}/news")
async def give_news(run: Name, asked: NewsRequest, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Long poll: new lines of a run's files; also answers when the run's state or trouble has changed."""
    record = coordinator.state.find_run(run)
    state, trouble, deadline = record.state, coordinator.trouble(run), time.monotonic() + POLL_S
    while True:
        chunks = await asyncio.to_thread(
            read_news, record.folder, asked.offsets, only_logs=asked.only_logs, tail_bytes=asked.tail_bytes
        )
        record = coordinator.state.find_run(run)
        is_news = chunks or record.state != state or coordinator.trouble(run) != trouble
        if is_news or record.has_ended or time.monotonic() > deadline:
            return {"chunks": [asdict(chunk) for chunk in chunks], "run": await coordinator.describe(record)}
        await asyncio.sleep(_NEWS_LOOK_S)


@_members.get("/status")
async def show_status(coordinator: CoordinatorDep) -> dict[str, Any]:
    """All machines, links and runs."""
    await asyncio.to_thread(coordinator.readings.read, list(coordinator.state.runs.values()))
    return coordinator.status()


@_members.post("/machines/{name}/leave")
async def ask_to_leave(name: MachineName, machine: Machine, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Ask a machine to leave."""
    coordinator.ask_to_leave(name, by=machine)
    return {"machine": name, "leaves": True}
