"""The host's HTTP service: every path but /version needs a credential, or a proof or key derived from the token."""

import asyncio
import time
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import FileResponse

from potluck.core.errors import MeetingError
from potluck.core.run_folder import RunFolder
from potluck.core.version import __version__
from potluck.meeting.host.admission import Door, NotProvenError
from potluck.meeting.host.callers import CoordinatorDep, Machine, address_of, member, onlooker
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.credentials import Admission
from potluck.meeting.host.metrics import Metrics
from potluck.meeting.host.refusals import add_refusals
from potluck.meeting.host.reign import NotConfirmedError
from potluck.meeting.host.run_paths import run_paths
from potluck.meeting.host.succession_paths import succession_paths
from potluck.meeting.transfer.arrivals import CheckpointPart, newest_checkpoint, receive_checkpoint
from potluck.meeting.transfer.bundle import BundleCache
from potluck.meeting.transfer.shipping import receive
from potluck.meeting.wire import (
    POLL_S,
    PROOF_HEADER,
    JoinAnswer,
    MachineName,
    Name,
    PollRequest,
    Report,
    VersionAnswer,
    VisitAnswer,
    VisitBegun,
    VisitQuestion,
)
from potluck.report.prometheus import CONTENT_TYPE


def make_service(*, door: Door, coordinator: Coordinator, bundles: BundleCache) -> FastAPI:
    """The service as a FastAPI application."""
    app = FastAPI(
        title="Potluck host",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # Nothing leaves this host but to its machines; and looking for somebody to tell took a fifth of a busy host.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.door, app.state.coordinator, app.state.bundles, app.state.metrics = door, coordinator, bundles, Metrics()
    app.add_middleware(Admission, door=door, coordinator=coordinator)
    add_refusals(app)
    app.include_router(_doorway)
    app.include_router(_onlookers, dependencies=[Depends(onlooker)])
    for paths in (_members, run_paths, succession_paths):
        app.include_router(paths, dependencies=[Depends(member)])
    return app


_doorway = APIRouter()
_onlookers = APIRouter()
_members = APIRouter()


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
    proof, succession = request.headers.get(PROOF_HEADER, ""), coordinator.succession
    confirmed = partial(succession.confirm, coordinator.changes)
    answer = await door.join(await request.body(), proof, address_of(request), confirmed)
    coordinator.changes.tell()
    await succession.keep(coordinator.changes)  # or the next host would not know this machine
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
    coordinator.succession.reign.acknowledge(machine, asked.electorate)
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
                return Response(coordinator.shared.encoded(machine, asked.known, orders), media_type="application/json")
            left_s = min(left_s, pause_s)
        elif left_s <= 0:
            return Response(orders.unchanged().model_dump_json(), media_type="application/json")
        await coordinator.shared.wait(left_s)


@_members.post("/report")
async def take_report(told: Report, machine: Machine, coordinator: CoordinatorDep, request: Request) -> dict[str, bool]:
    """Take a machine's report of itself and its workers."""
    coordinator.take(machine, told, address_of(request))
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


# Everything


@_members.get("/status")
async def show_status(coordinator: CoordinatorDep) -> dict[str, Any]:
    """All machines, links and runs."""
    await asyncio.to_thread(coordinator.readings.read, list(coordinator.state.runs.values()))
    return coordinator.status()


@_members.post("/machines/{name}/leave")
async def ask_to_leave(name: MachineName, machine: Machine, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Ask a machine to leave. The word of a person that a lost one is gone lets a host act that could not."""
    try:
        await coordinator.succession.confirm(coordinator.changes)
    except NotConfirmedError:
        if not coordinator.succession.is_lost(name):
            raise
    if coordinator.succession.is_lost(name):
        coordinator.ask_to_leave(name, by=machine)
        return {"machine": name, "leaves": True, "warning": ""}
    coordinator.ask_to_leave(name, by=machine)
    return {"machine": name, "leaves": True, "warning": await coordinator.succession.keep(coordinator.changes)}
