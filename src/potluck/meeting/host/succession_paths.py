"""The paths of the host's service for its successors: copies of its state and of runs' files; and for a handover."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from potluck.core.errors import MeetingError, did_you_mean
from potluck.meeting.host.callers import CoordinatorDep, Machine
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.state_copies import read_part
from potluck.meeting.succession.state_copy import StateAnswer, StateRequest
from potluck.meeting.wire import MachineName, Name

succession_paths = APIRouter()


@succession_paths.post("/succession")
async def give_state(asked: StateRequest, machine: Machine, coordinator: CoordinatorDep) -> StateAnswer:
    """The host's state, for a machine that may take its place, if the machine's copy is older."""
    _check_successor(coordinator, machine)
    succession = coordinator.succession
    if succession.reign.copies.note(machine, asked.known):
        coordinator.changes.tell()
    state, runs = succession.take(), dict(coordinator.state.runs)
    return await asyncio.to_thread(succession.copies.answer, state, asked.known, runs)


@succession_paths.get("/succession/files/{run}")
async def give_part(
    run: Name,
    machine: Machine,
    coordinator: CoordinatorDep,
    *,
    file: Annotated[str, Query(max_length=300)],
    offset: Annotated[int, Query(ge=0)],
) -> Response:
    """Bytes of a run's file from an offset."""
    _check_successor(coordinator, machine)
    folder = coordinator.state.find_run(run).folder
    return Response(await asyncio.to_thread(read_part, folder, file, offset), media_type="application/octet-stream")


@succession_paths.post("/handover/{name}")
async def hand_over(name: MachineName, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Make another machine the host, between two steps."""
    state = coordinator.state
    if name not in state.machines:
        raise MeetingError(f"no machine is called {name!r}", fix=did_you_mean(name, state.machines))
    await coordinator.succession.hand_over(name, coordinator.changes)
    return {"host": name}


def _check_successor(coordinator: Coordinator, machine: str) -> None:
    if machine not in coordinator.succession.reign.succession.successors:
        raise MeetingError(f"{machine} is no successor of this host", fix="see who is: potluck status")
