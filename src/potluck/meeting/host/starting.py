"""Starts a run: chooses its machines, makes its folder and lighthouse, and builds its record."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from potluck.core.errors import MeetingError, did_you_mean, is_close
from potluck.core.torchrun_variables import plain_devices
from potluck.meeting.host.changes import Changes
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.pairs import check_direct
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.run_setup import prepare_script, prepare_training
from potluck.meeting.host.runs import RunRecord, add_machine
from potluck.meeting.host.state import HostState
from potluck.meeting.transfer.selection import check_script
from potluck.meeting.transfer.states import ArrivedStates
from potluck.meeting.wire import RunRequest, RunTask, SharedFolder

_READY_S = 60.0
_STORE_PORTS = (20_000, 29_000)  # below the ports that the kernel gives to outgoing connections


class RunStarter:
    """Starts one run at a time: two concurrent requests must not get the same machines."""

    def __init__(
        self,
        *,
        roster: MachineRoster,
        changes: Changes,
        lighthouses: Lighthouses,
        runs_dir: Path,
        states: ArrivedStates,
        state: Callable[[], HostState],
        clock: Callable[[], float],
    ) -> None:
        self._roster = roster
        self._changes = changes
        self._lighthouses = lighthouses
        self._runs_dir = runs_dir
        self.states = states
        self._state = state
        self._clock = clock
        self._turn = asyncio.Lock()

    async def start(self, request: RunRequest, by: str, keep: Callable[[RunRecord], None]) -> RunRecord:
        """Start a run on all joined machines, or on those named; `keep` stores it before the next run starts."""
        if request.task.settings is None:
            check_script(request.task)
        async with self._turn:
            machines = await self._choose(request)
            if request.task.is_plain:
                machines.sort(key=lambda name: name != by)  # rank 0, which saves checkpoints, is where the user sits
            if request.is_direct:
                check_direct(self._roster, machines)
            record = await self._make_record(request, by, {name: self._devices(name, request) for name in machines})
            keep(record)
            return record

    async def _choose(self, request: RunRequest) -> list[str]:
        deadline = time.monotonic() + _READY_S
        while is_awaited(self._state(), request, self._clock()) and time.monotonic() <= deadline:
            await self._changes.wait(1.0)
        return choose_machines(self._state(), request, self._clock())

    def _devices(self, machine: str, request: RunRequest) -> list[str]:
        forced = (request.task.settings or {}).get("device")
        own = [str(forced)] if forced else list(self._roster.machines[machine].devices or ["cpu"])
        return plain_devices(own) if request.task.is_plain else own

    async def _make_record(self, request: RunRequest, by: str, devices: dict[str, list[str]]) -> RunRecord:
        num_workers = sum(map(len, devices.values()))
        if request.task.settings is not None:
            folder, task, is_resumed = await asyncio.to_thread(
                prepare_training, request, self._runs_dir, num_workers, self.states
            )
        else:
            folder, task, is_resumed = prepare_script(request, self._runs_dir)
        user = self._roster.machines[by].facts.user
        before = self._state().runs.get(folder.name) if is_resumed else None
        task = _with_data(task, request.task.data, by, before)
        run_id = before.id if before else secrets.token_hex(8)
        numbers = {name: [worker.number for worker in own] for name, own in before.workers.items()} if before else {}
        record = RunRecord(
            name=folder.name,
            id=run_id,
            task=task,
            started_by=f"{user}@{by}" if user else by,
            started_at=self._clock(),
            folder=folder.path.absolute(),
            secret=secrets.token_hex(16),
            lighthouse_port=await self._meeting_port(request, run_id),
            is_direct=request.is_direct,
            machines=request.machines,
            without=request.without,
            reserved=numbers,
            expected=num_workers,
            start_number=before.start_number + 1 if before else 1,
            is_resumed=is_resumed,
            begins_with_state=request.state is not None,
            state="preparing" if task.bundle else "running",
        )
        for machine, own in devices.items():
            record = add_machine(record, machine, own, self._roster.machines[machine].cards)
        return record

    async def _meeting_port(self, request: RunRequest, run_id: str) -> int:
        """The port of the run's lighthouse, which is started; for a plain run, of the store that rank 0 will serve."""
        if request.task.is_plain:
            return random.randint(*_STORE_PORTS)  # noqa: S311  no secret: rank 0 tells if another program has it
        return await asyncio.to_thread(self._lighthouses.start, run_id)


def _with_data(task: RunTask, asked: list[SharedFolder], by: str, before: RunRecord | None) -> RunTask:
    """The task with folders of the machine that asks only; a resumed run keeps its own if the request names none."""
    if not asked and before is not None:
        return task.model_copy(update={"data": before.task.data})
    return task.model_copy(update={"data": [one.model_copy(update={"source": by}) for one in asked]})


def is_awaited(state: HostState, request: RunRequest, now: float) -> bool:
    """Whether a machine that the request includes is still getting ready; raises for a name that no machine has.

    A machine to keep may join later, so only a name that is almost another one's is refused.
    """
    kept = [name for name in request.task.kept_machines if is_close(name, state.machines)]
    for name in [*(request.machines or []), *request.without, *kept]:
        if name not in state.machines:
            raise MeetingError(f"no machine is called {name!r}", fix=did_you_mean(name, state.machines))
    return "getting ready" in _wanted(state, request, now).values()


def choose_machines(state: HostState, request: RunRequest, now: float) -> list[str]:
    """The machines that take part; raises if there are none, a named one is not here, or one is busy."""
    chosen = [name for name, is_now in _wanted(state, request, now).items() if is_now == "here"]
    for name in request.machines or []:
        if name not in chosen:
            raise MeetingError(
                f"{name} cannot train now: it is {state.machines[name].state(now)}",
                fix=f"on {name}: potluck join, or leave it out of --machines",
            )
    if not chosen:
        raise MeetingError(
            "no machine is here to train", fix="join one with the line that potluck host prints, or use --solo"
        )
    busy = {machine: record.name for record in state.unfinished() for machine in record.workers if machine in chosen}
    if busy:
        run = next(iter(busy.values()))
        raise MeetingError(
            f"{', '.join(busy)} still {'work' if len(busy) > 1 else 'works'} on run {run}",
            fix=f"wait for it, stop it (potluck stop {run}), or choose others with --machines",
        )
    return chosen


def _wanted(state: HostState, request: RunRequest, now: float) -> dict[str, str]:
    """The states of the machines that could take part."""
    return {
        name: machine.state(now)
        for name, machine in state.machines.items()
        if machine.state(now) in ("here", "getting ready")
        and machine.facts.can_train
        and name not in request.without
        and (request.machines is None or name in request.machines)
    }
