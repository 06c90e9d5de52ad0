"""The host's part in everything: takes messages, keeps the state that they make, and carries out what follows."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from potluck.core.run_folder import RunFolder
from potluck.meeting.host import state as decisions
from potluck.meeting.host.changes import Changes
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.pausing import has_paused
from potluck.meeting.host.readings import RunReadings
from potluck.meeting.host.relay import Visits
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.run_files import RunFiles
from potluck.meeting.host.run_watch import RunWatch
from potluck.meeting.host.runs import RunRecord, assignment_for
from potluck.meeting.host.shared_orders import SharedOrders
from potluck.meeting.host.starting import RunStarter
from potluck.meeting.host.state import HostState
from potluck.meeting.host.status import show_everything, show_run
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.transfer.run_tail import conclude
from potluck.meeting.wire import GateOrders, Introduction, Orders, Report, RunRequest


class Coordinator:
    """Holds the host's state. Decisions are in state.py; here they are written down, told and acted on."""

    def __init__(
        self,
        *,
        folder: Path,
        facts: Introduction,
        roster: MachineRoster,
        runs_dir: Path,
        lighthouses: Lighthouses,
        clock: Callable[[], float] = time.time,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.troubles = Troubles(tell)
        self.roster = roster
        self.changes = Changes()
        self.visits = Visits(roster, self.changes)
        self.shared = SharedOrders(self.changes, self._make_gate_orders)
        self.readings = RunReadings(facts.machine, self.troubles)
        self.files = RunFiles(folder / "runs", self.troubles)
        self._lighthouses = lighthouses
        self._clock = clock
        self._watch = RunWatch(roster, facts.machine)
        self._starter = RunStarter(
            roster=roster,
            changes=self.changes,
            lighthouses=lighthouses,
            runs_dir=runs_dir,
            state=lambda: self.state,
            clock=clock,
        )
        self._kept = HostState(host=facts.machine, began_at=clock(), machines=roster.machines, runs=self.files.load())

    @property
    def state(self) -> HostState:
        """Who has joined and what runs now; the roster also takes machines in by itself."""
        return replace(self._kept, machines=self.roster.machines)

    def _become(self, after: HostState) -> None:
        """Write down what has changed, tell everybody who waits, and close what is over."""
        before, self._kept = self.state, after
        is_news = self.roster.become(after.machines)
        for name, record in after.runs.items():
            if record is not before.runs.get(name):
                self.files.save(record)
                is_news = True
        for name in before.ended_at.keys() - after.ended_at.keys():
            self._close(before.runs[name], is_resumed=not after.runs[name].has_ended)
        if is_news:
            self.changes.tell()

    def _close(self, record: RunRecord, *, is_resumed: bool) -> None:
        """Everything of a run's start is here, or will not come any more; a resumed run has another lighthouse."""
        with self.troubles.survived(f"run {record.name}'s lighthouse"):
            self._lighthouses.stop(record.lighthouse_port)
        if not is_resumed:
            asyncio.get_running_loop().run_in_executor(None, self._conclude, record)

    def _conclude(self, record: RunRecord) -> None:
        with self.troubles.survived(f"run {record.name}'s summaries"):
            conclude(RunFolder(record.folder))

    # Messages

    def heard(self, machine: str) -> None:
        """A sign of life."""
        self._become(decisions.hear(self.state, machine, self._clock()))

    def take(self, machine: str, report: Report, address: str = "") -> None:
        """What a machine says of itself and its workers; it came from that address."""
        self._become(decisions.take(self.state, machine, report, address, self._clock()))

    def ask_to_leave(self, machine: str, *, by: str) -> None:
        """Let a machine go."""
        self._become(decisions.ask_to_leave(self.state, machine, by, self._clock()))

    async def start_run(self, request: RunRequest, by: str) -> RunRecord:
        """Start a run on everyone joined, or on those named."""
        return await self._starter.start(request, by, self.put_run)

    def put_run(self, record: RunRecord) -> None:
        """A run that is new, or has changed."""
        self._become(decisions.put_run(self.state, record, self._clock()))

    def stop_run(self, name: str) -> RunRecord:
        """Ask all workers to stop after their step."""
        self._become(decisions.stop_run(self.state, name, self._clock()))
        return self._kept.runs[name]

    def pause_runs(self) -> list[str]:
        """The host is about to end: every run stops after its step, to go on when the host starts again."""
        self._become(decisions.pause_runs(self.state, self._clock()))
        return [record.name for record in self._kept.unfinished() if record.state == "paused"]

    def are_runs_paused(self) -> bool:
        """Whether all that machines in reach still had to do and to send is done."""
        absent = self.state.absent(self._clock())
        return all(has_paused(record, absent) for record in self._kept.unfinished() if record.state == "paused")

    # Time passes

    async def read_runs(self) -> None:
        """Read the folders of runs that go on, and of those whose last files are on their way."""
        kept = self._kept
        due = [record for record in kept.runs.values() if not record.has_ended or record.name in kept.ended_at]
        await asyncio.to_thread(self.readings.read, due)

    def tick(self) -> None:
        """Once a second: who is away by now, and what that means for the runs."""
        self.shared.make_again()
        state, now = self.state, self._clock()
        has_new_lines = self._watch.look(state.unfinished(), state.absent(now), self.readings)
        self._become(decisions.pass_time(state, now, self.readings.found, self._watch.left_out()))
        if has_new_lines:
            self.changes.tell()
        self.files.save_again()
        self.roster.save_again()
        if self.roster.unsaved is not None:
            self.troubles.note("the roster", self.roster.unsaved)
        with self.troubles.survived("the doctor's visits"):
            self.visits.tick()

    # What can be seen

    def orders(self, machine: str) -> Orders:
        """All that this machine should be doing now."""
        state = self.state
        parts = [part for record in state.runs.values() if (part := assignment_for(record, machine, host=state.host))]
        known = state.machines[machine]
        told = [*self._watch.link_trouble(machine), *(line for part in parts for line in self.trouble(part.run))]
        orders = Orders(
            gate=self.shared.gate(),
            assignments=parts,
            visits=self.visits.told_to(machine),
            leave=known.leaves_by is not None,
            is_sent_away=known.is_sent_away,
            trouble=list(dict.fromkeys(told)),
            digest="",
        )
        return self.shared.sealed(orders)

    def _make_gate_orders(self) -> GateOrders:
        """Whom all gates let in, and for what: a run that has ended goes on until everything of it is here."""
        kept = self._kept
        runs = {
            record.id: sorted(record.workers)
            for record in kept.runs.values()
            if not record.has_ended or record.name in kept.ended_at
        }
        return GateOrders(
            block=self.roster.block,
            host=kept.host,
            members=self.roster.members(),
            runs={**runs, **self.visits.as_runs()},
        )

    def status(self, *, with_direct: bool = True) -> dict[str, Any]:
        """Everyone and everything, as of the last reading; the host's own screen shows no direct links."""
        shown = show_everything(self.state, self.roster, self.readings, now=self._clock(), with_direct=with_direct)
        for run in shown["runs"]:
            run["trouble"] = list(self.trouble(run["run"]))
        return {**shown, "trouble": list(self._watch.link_trouble())}

    def trouble(self, run: str) -> tuple[str, ...]:
        """What keeps a run from going on as it should, in lines for people."""
        return self._watch.trouble(run)

    async def describe(self, record: RunRecord) -> dict[str, Any]:
        """One run, with what its folder says now."""
        await asyncio.to_thread(self.readings.read, [record])
        shown = show_run(record, self.readings.of(record.name), self.state.absent(self._clock()))
        return {**shown, "trouble": list(self.trouble(record.name))}
