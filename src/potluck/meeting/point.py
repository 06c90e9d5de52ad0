"""The meeting point itself: who is here, what runs, and what each machine should be doing now."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from potluck.core.atomic import write_secret
from potluck.core.errors import MeetingError, did_you_mean
from potluck.core.run_folder import RunFolder
from potluck.events.alive import Vigils
from potluck.meeting.asking import prepare_script, prepare_training
from potluck.meeting.changes import Changes
from potluck.meeting.lighthouses import Lighthouses
from potluck.meeting.news import conclude, read_pace
from potluck.meeting.pairs import check_direct
from potluck.meeting.roster import LEAVE_S, Roster
from potluck.meeting.runs import (
    RunRecord,
    add_machine,
    assignment_for,
    is_home,
    judge,
    lower_expectation,
    take_report,
    wants,
)
from potluck.meeting.status import show_everything, show_run, speeds
from potluck.meeting.visits import Visits
from potluck.meeting.wire import Facts, GateOrders, Orders, Report, RunRequest

_READY_S = 60.0
_KEEP_LIGHTHOUSE_S = 60.0


class MeetingPoint:
    """The host's state: the roster, the runs, and who waits for news of either."""

    def __init__(
        self,
        *,
        folder: Path,
        facts: Facts,
        roster: Roster,
        runs_dir: Path,
        lighthouses: Lighthouses,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.facts = facts
        self.roster = roster
        self.changes = Changes()
        self.visits = Visits(roster, self.changes)
        self._folder = folder
        self._runs_dir = runs_dir
        self._lighthouses = lighthouses
        self._clock = clock
        self._starting = asyncio.Lock()
        self._ended_at: dict[str, float] = {}
        self._vigils = Vigils()
        self.runs: dict[str, RunRecord] = {}
        for file in sorted((folder / "runs").glob("*.json")):
            try:
                record = RunRecord.model_validate_json(file.read_bytes())
            except ValidationError:
                raise MeetingError(
                    f"{file} is damaged", fix=f"rm {file}; the run's own folder is not touched"
                ) from None
            self.runs[record.name] = record
            self._vigils.note(RunFolder(record.folder), goes_on=not record.has_ended)

    # What runs

    def unfinished(self) -> list[RunRecord]:
        return [record for record in self.runs.values() if not record.has_ended]

    def find_run(self, name: str) -> RunRecord:
        if name not in self.runs:
            raise MeetingError(
                f"there is no run {name!r}",
                fix=did_you_mean(name, self.runs) if self.runs else "start one: potluck train",
            )
        return self.runs[name]

    def relight(self) -> None:
        """After a restart: the lighthouses of runs that go on, on the ports that their workers know."""
        for record in self.unfinished():
            self._lighthouses.start(record.id, record.lighthouse_port)

    async def start_run(self, request: RunRequest, by: str) -> RunRecord:
        """Start a run on everyone joined, or on those named."""
        async with self._starting:
            machines = await self._choose(request)
            if request.is_direct:
                check_direct(self.roster, machines)
            devices = {machine: self._devices_for(machine, request) for machine in machines}
            num_workers = sum(map(len, devices.values()))
            if request.task.settings is not None:
                folder, task, is_resumed = await asyncio.to_thread(
                    prepare_training, request, self._runs_dir, num_workers
                )
            else:
                folder, task, is_resumed = prepare_script(request, self._runs_dir)
            user = self.roster.machines[by].facts.user
            before = self.runs.get(folder.name) if is_resumed else None
            run_id = before.id if before else secrets.token_hex(8)
            record = RunRecord(
                name=folder.name,
                id=run_id,
                task=task,
                started_by=f"{user}@{by}" if user else by,
                started_at=self._clock(),
                folder=folder.path.absolute(),
                secret=secrets.token_hex(16),
                lighthouse_port=await asyncio.to_thread(self._lighthouses.start, run_id),
                is_direct=request.is_direct,
                machines=request.machines,
                without=request.without,
                reserved={name: [w.number for w in workers] for name, workers in before.workers.items()}
                if before
                else {},
                expected=num_workers,
                is_resumed=is_resumed,
                state="preparing" if task.bundle else "running",
            )
            for machine in machines:
                record = add_machine(record, machine, devices[machine])
            self._put(record)
            return record

    async def _choose(self, request: RunRequest) -> list[str]:
        for name in [*(request.machines or []), *request.without]:
            if name not in self.roster.machines:
                raise MeetingError(f"no machine is called {name!r}", fix=did_you_mean(name, self.roster.machines))
        deadline = time.monotonic() + _READY_S
        while any(self.roster.state(name) == "getting ready" for name in self._wanted(request)):
            if time.monotonic() > deadline:
                break
            await self.changes.wait(1.0)
        chosen = [name for name in self._wanted(request) if self.roster.state(name) == "here"]
        for name in request.machines or []:
            if name not in chosen:
                raise MeetingError(
                    f"{name} cannot train now: it is {self.roster.state(name)}",
                    fix=f"on {name}: potluck join, or leave it out of --machines",
                )
        if not chosen:
            raise MeetingError(
                "no machine is here to train", fix="join one with the line that potluck host prints, or use --solo"
            )
        busy = {machine: record.name for record in self.unfinished() for machine in record.workers if machine in chosen}
        if busy:
            run = next(iter(busy.values()))
            raise MeetingError(
                f"{', '.join(busy)} still {'work' if len(busy) > 1 else 'works'} on run {run}",
                fix=f"wait for it, stop it (potluck stop {run}), or choose others with --machines",
            )
        return chosen

    def _wanted(self, request: RunRequest) -> list[str]:
        return [
            name
            for name in self.roster.present()
            if self.roster.machines[name].facts.can_train
            and name not in request.without
            and (request.machines is None or name in request.machines)
        ]

    def _devices_for(self, machine: str, request: RunRequest) -> list[str]:
        forced = (request.task.settings or {}).get("device")
        return [str(forced)] if forced else list(self.roster.machines[machine].devices or ["cpu"])

    def stop_run(self, name: str) -> RunRecord:
        """Ask all workers to stop after their step."""
        record = self.find_run(name)
        if not record.has_ended:
            self._put(record.with_(state="stopping"))
            self._judge()
        return self.runs[name]

    # What machines hear and say

    def orders(self, machine: str) -> Orders:
        """All that this machine should be doing now."""
        parts = [
            part for record in self.runs.values() if (part := assignment_for(record, machine, host=self.facts.machine))
        ]
        leave, visits = self.roster.machines[machine].leaves_by is not None, self.visits.told_to(machine)
        orders = Orders(gate=self.gate_orders(), assignments=parts, visits=visits, leave=leave, digest="")
        return orders.model_copy(update={"digest": hashlib.sha256(orders.model_dump_json().encode()).hexdigest()[:16]})

    def gate_orders(self) -> GateOrders:
        """Whom all gates let in, and for what: a run that has ended goes on until everything of it is here."""
        runs = {
            record.id: sorted(record.workers)
            for record in self.runs.values()
            if not record.has_ended or record.name in self._ended_at
        }
        return GateOrders(
            block=self.roster.block,
            host=self.facts.machine,
            members=self.roster.members(),
            runs={**runs, **self.visits.as_runs()},
        )

    def heard(self, machine: str) -> None:
        """A sign of life: a machine that was away is back."""
        was = self.roster.state(machine)
        self.roster.heard(machine)
        if was in ("away", "left"):
            self._welcome_into_runs(machine)
            self.changes.tell()

    def take(self, machine: str, report: Report, address: str = "") -> None:
        """What a machine says of itself and its workers; it came from that address."""
        self.heard(machine)
        known = self.roster.machines[machine]
        self._take_reach(machine, report, address)
        if report.devices is not None and report.devices != known.devices:
            known.devices = report.devices
            self.roster.save()
            self._welcome_into_runs(machine)
            self.changes.tell()
        for worker in report.workers:
            if worker.run in self.runs:
                self._put(take_report(self.runs[worker.run], machine, worker))
        if report.is_leaving:
            known.has_left, removed = True, known.leaves_by is not None
            if removed:
                self.roster.remove(machine)
            else:
                self.roster.save()
            self.changes.tell()
        self._judge()

    def _take_reach(self, machine: str, report: Report, address: str) -> None:
        """Where the machine's gate is: what it says, and where it came from."""
        known = self.roster.machines[machine]
        known.links = report.links or known.links
        if report.reach is None:
            return
        reach = report.reach.model_copy(update={"seen_at": address or None})
        if reach != known.reach:
            known.reach = reach
            self.roster.save()
            self.changes.tell()

    def ask_to_leave(self, machine: str) -> None:
        """Take a machine off the roster: at once if it is not here, else after its step."""
        if machine not in self.roster.machines:
            raise MeetingError(f"no machine is called {machine!r}", fix=did_you_mean(machine, self.roster.machines))
        if machine == self.facts.machine:
            raise MeetingError(f"{machine} is the host itself", fix=f"end potluck host on {machine} with Ctrl-C")
        if self.roster.state(machine) in ("away", "left"):
            self.roster.remove(machine)
        else:
            self.roster.machines[machine].leaves_by = self._clock() + LEAVE_S
            self.roster.save()
        self.changes.tell()

    def _welcome_into_runs(self, machine: str) -> None:
        """A machine that comes late takes part in what runs, unless it was not wanted."""
        known = self.roster.machines[machine]
        if known.devices is None or not known.facts.can_train:
            return
        for record in self.unfinished():
            if machine in record.workers:
                return
        for record in self.unfinished():
            if wants(record, machine) and record.machines is None:
                forced = (record.task.settings or {}).get("device")
                self._put(add_machine(record, machine, [forced] if forced else known.devices))
                return

    # Time passes

    def tick(self) -> None:
        """Once a second: who is away by now, and what that means for the runs."""
        if not self.facts.can_train:
            # A machine that only hosts has no agent that reports: that time passes here is its sign of life.
            self.roster.heard(self.facts.machine)
        for name in self.roster.overdue():  # it was asked to leave and does not: it is not asked again
            self.roster.remove(name)
            self.changes.tell()
        self._judge()
        self.visits.tick()
        for name, ended_at in list(self._ended_at.items()):
            if is_home(self.runs[name], self.absent()) or self._clock() - ended_at > _KEEP_LIGHTHOUSE_S:
                self._lighthouses.stop(self.runs[name].lighthouse_port)
                del self._ended_at[name]
                asyncio.get_running_loop().run_in_executor(None, conclude, self.folder_of(name))

    def absent(self) -> frozenset[str]:
        """Machines that nothing can be expected of now."""
        present = {name for name in self.roster.machines if self.roster.state(name) not in ("away", "left")}
        return frozenset({name for record in self.runs.values() for name in record.workers} - present)

    def _judge(self) -> None:
        absent = self.absent()
        for record in self.unfinished():
            judged = judge(record, absent)
            if judged.state == "running":
                has_stepped = judged.expected <= 1 or read_pace(record.folder).step > 0
                judged = lower_expectation(judged, absent, has_stepped=has_stepped)
            self._put(judged)

    def _put(self, record: RunRecord) -> None:
        before = self.runs.get(record.name)
        if before == record:
            return
        self.runs[record.name] = record
        self._vigils.note(RunFolder(record.folder), goes_on=not record.has_ended)
        if record.has_ended and (before is None or not before.has_ended):
            self._ended_at[record.name] = self._clock()
            self._note_speeds(record)
        write_secret(self._folder / "runs" / f"{record.name}.json", record.model_dump_json(indent=1))
        self.changes.tell()

    def _note_speeds(self, record: RunRecord) -> None:
        for machine, speed in speeds(record).items():
            if machine in self.roster.machines:
                self.roster.machines[machine].samples_per_s = speed
        self.roster.save()

    # What can be seen

    def status(self) -> dict[str, Any]:
        """Everyone and everything."""
        runs = list(self.runs.values())
        return show_everything(self.roster, runs, self.absent(), host=self.facts.machine, now=self._clock())

    def describe(self, record: RunRecord) -> dict[str, Any]:
        """One run."""
        return show_run(record, self.absent())

    def folder_of(self, name: str) -> RunFolder:
        return RunFolder(self.find_run(name).folder)
