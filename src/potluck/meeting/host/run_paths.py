"""The paths of the host's service about runs: bundles, data, starting, watching and stopping."""

import asyncio
import time
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from potluck.core.errors import MeetingError
from potluck.core.run_folder import RunFolder
from potluck.meeting.host.callers import Bundles, CoordinatorDep, Machine
from potluck.meeting.transfer.arrivals import CheckpointPart
from potluck.meeting.transfer.run_tail import lengths, read_news
from potluck.meeting.wire import POLL_S, Digest, Name, NewsRequest, RunRequest
from potluck.report.account_file import write_account

_NEWS_LOOK_S = 0.2
run_paths = APIRouter()


@run_paths.put("/bundles/{digest}")
async def take_bundle(digest: Digest, request: Request, bundles: Bundles) -> dict[str, bool]:
    """Store a script's bundle."""
    await asyncio.to_thread(bundles.put, digest, await request.body())
    return {"kept": True}


@run_paths.get("/bundles/{digest}")
async def give_bundle(digest: Digest, bundles: Bundles) -> Response:
    """A script's bundle, for a machine that is to run the script."""
    data = await asyncio.to_thread(bundles.get, digest)
    if data is None:
        raise MeetingError("this host does not have that bundle", fix="start the run again with: potluck run")
    return Response(data, media_type="application/octet-stream")


@run_paths.put("/catalogues/{digest}")
async def take_catalogue(digest: Digest, request: Request, coordinator: CoordinatorDep) -> dict[str, bool]:
    """Store the list of a shared folder's files."""
    await asyncio.to_thread(coordinator.data.catalogues.put, digest, await request.body())
    return {"kept": True}


@run_paths.get("/catalogues/{digest}")
async def give_catalogue(digest: Digest, coordinator: CoordinatorDep) -> Response:
    """The list of a shared folder's files, for a machine that gets the folder."""
    content = await asyncio.to_thread(coordinator.data.catalogues.get, digest)
    return Response(content, media_type="application/octet-stream")


@run_paths.put("/states")
async def take_state(
    request: Request, machine: Machine, coordinator: CoordinatorDep, *, part: Annotated[CheckpointPart, Query()]
) -> dict[str, int]:
    """Take a part of the checkpoint file that a run is to begin with; answers with how many bytes the host has."""
    coordinator.heard(machine)
    return {"size": await asyncio.to_thread(coordinator.starter.states.receive, part, await request.body())}


@run_paths.post("/runs")
async def start_run(asked: RunRequest, machine: Machine, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Start a run on all joined machines, or on some of them."""
    await coordinator.succession.confirm(coordinator.changes)
    record = await coordinator.start_run(asked, by=machine)
    # No machine has its orders yet: everything in the run's files is from earlier starts.
    written = lengths(record.folder)
    warning = await coordinator.succession.keep(coordinator.changes)  # the run must not be lost with the host
    return {**await coordinator.describe(record), "written": written, "warning": warning}


@run_paths.get("/runs/{run}")
async def show_run(run: Name, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Describe a run."""
    return await coordinator.describe(coordinator.state.find_run(run))


@run_paths.get("/runs/{run}/account")
async def show_account(run: Name, coordinator: CoordinatorDep) -> dict[str, Any]:
    """The run's account, from the events that have arrived."""
    account = await asyncio.to_thread(write_account, RunFolder(coordinator.state.find_run(run).folder))
    return {"account": None if account is None else account.as_data()}


@run_paths.post("/runs/{run}/stop")
async def stop_run(run: Name, coordinator: CoordinatorDep) -> dict[str, Any]:
    """Stop a run after its step."""
    await coordinator.succession.confirm(coordinator.changes)
    record = coordinator.stop_run(run)
    warning = await coordinator.succession.keep(coordinator.changes)
    return {**await coordinator.describe(record), "warning": warning}


@run_paths.post("/runs/{run}/news")
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
