"""The host's coordinator: applies messages to the host's state, saves the new state, and acts on the changes."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from potluck.core.run_folder import RunFolder
from potluck.meeting.host import state as decisions
from potluck.meeting.host.changes import Changes
from potluck.meeting.host.data_board import DataBoard, has_part
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.pausing import has_paused
from potluck.meeting.host.readings import RunReadings
from potluck.meeting.host.reign import Reign
from potluck.meeting.host.relay import Visits
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.run_files import RunFiles
from potluck.meeting.host.run_watch import RunWatch
from potluck.meeting.host.runs import RunRecord, assignment_for
from potluck.meeting.host.shared_orders import SharedOrders
from potluck.meeting.host.starting import RunStarter
from potluck.meeting.host.state import HostState
from potluck.meeting.host.status import show_everything, show_run
from potluck.meeting.host.succession import HostSuccession
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.transfer.run_tail import conclude
from potluck.meeting.transfer.states import ArrivedStates
from potluck.meeting.wire import GateOrders, Introduction, Orders, Report, RunRequest


class Coordinator:
    """Holds the host's state. state.py makes the decisions; the coordinator saves, announces and carries them out."""

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
        reign: Reign | None = None,
        token: bytes = b"",
    ) -> None:
        self.troubles = Troubles(tell)
        self.roster = roster
        self.succession = HostSuccession(
            reign or Reign(facts.machine), token, roster, lambda: self._kept.runs, lambda: self.changes.count
        )
        self.changes = Changes()
        self.visits = Visits(roster, self.changes)
        self.shared = SharedOrders(self.changes, self._make_gate_orders)
        self.readings = RunReadings(facts.machine, self.troubles)
        self.files = RunFiles(folder / "runs", self.troubles)
        self.data = DataBoard(folder / "catalogues")
        self.install = ""
        """The command that installs the host's Potluck on a machine that has another version."""
        self._lighthouses = lighthouses
        self._clock = clock
        self._watch = RunWatch(roster, facts.machine)
        self.starter = RunStarter(
            roster=roster,
            changes=self.changes,
            lighthouses=lighthouses,
            runs_dir=runs_dir,
            states=ArrivedStates(folder / "states"),
            state=lambda: self.state,
            clock=clock,
        )
        self._kept = HostState(host=facts.machine, began_at=clock(), machines=roster.machines, runs=self.files.load())

    @property
    def state(self) -> HostState:
        """Machines and runs now; the machines are the roster's, since a join changes the roster directly."""
        return replace(self._kept, machines=self.roster.machines)

    def _become(self, after: HostState) -> None:
        """Replace the state: save what has changed, wake waiting requests, and close runs that are over."""
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
        """Stop the lighthouse of an ended start of a run; unless the run is resumed, write its summaries."""
        with self.troubles.survived(f"run {record.name}'s lighthouse"):
            self._lighthouses.stop(record.lighthouse_port)
        if not is_resumed:
            asyncio.get_running_loop().run_in_executor(None, self._conclude, record)

    def _conclude(self, record: RunRecord) -> None:
        with self.troubles.survived(f"run {record.name}'s summaries"):
            conclude(RunFolder(record.folder))

    # Messages

    def heard(self, machine: str) -> None:
        """Note that a machine has sent a request, and so is alive."""
        self._become(decisions.hear(self.state, machine, self._clock()))

    def take(self, machine: str, report: Report, address: str = "") -> None:
        """Apply a machine's report of itself and its workers; `address` is where the report came from."""
        is_news = self.data.take(machine, report.data)
        if report.is_leaving and report.gives_up_vote:  # at once: the last ones to leave would else keep the lease
            self.succession.reign.end_vote(machine)
        self._become(decisions.take(self.state, machine, report, address, self._clock()))
        if is_news:
            self.changes.tell()

    def ask_to_leave(self, machine: str, *, by: str) -> None:
        """Ask a machine to leave; `by` is the machine that wants it. The word of a person ends the vote of a lost one.

        A machine without which this host may not act is one of those, also if it was heard a moment ago, or is off
        the roster because it was sent away.
        """
        is_lost = self.succession.is_lost(machine)
        if is_lost:
            self.succession.reign.end_vote(machine)
            self.changes.tell()
        if machine in self.roster.machines or not is_lost:
            self._become(decisions.ask_to_leave(self.state, machine, by, self._clock()))

    async def start_run(self, request: RunRequest, by: str) -> RunRecord:
        """Start a run on all joined machines, or on those that the request names."""
        return await self.starter.start(request, by, self.put_run)

    def put_run(self, record: RunRecord) -> None:
        """Add a run, or replace its record."""
        self._become(decisions.put_run(self.state, record, self._clock()))

    def stop_run(self, name: str) -> RunRecord:
        """Ask all workers to stop after their step."""
        self._become(decisions.stop_run(self.state, name, self._clock()))
        return self._kept.runs[name]

    def pause_runs(self) -> tuple[list[str], list[str]]:
        """The host is about to end: every run stops after its step, to go on when the host starts again.

        Returns the names of these runs, and those of plain runs, which end for good.
        """
        self._become(decisions.pause_runs(self.state, self._clock()))
        records = self._kept.unfinished()
        paused = [record.name for record in records if record.state == "paused"]
        return paused, [record.name for record in records if record.task.is_plain]

    def are_runs_paused(self) -> bool:
        """Whether the workers of all paused runs have ended and sent their files, on machines that are not absent."""
        absent = self.state.absent(self._clock())
        waited_for = [one for one in self._kept.unfinished() if one.state == "paused" or one.task.is_plain]
        return all(has_paused(record, absent) for record in waited_for)

    # Once a second

    async def read_runs(self) -> None:
        """Read the folders of unfinished runs, and of ended runs whose last files are on their way."""
        kept = self._kept
        due = [record for record in kept.runs.values() if not record.has_ended or record.name in kept.ended_at]
        await asyncio.to_thread(self.readings.read, due)

    def tick(self) -> None:
        """Once a second: apply the passing of time to machines and runs, and retry what could not be saved."""
        self.shared.make_again()
        state, now = self.state, self._clock()
        has_new_lines = self._watch.look(state.unfinished(), state.absent(now), self.readings)
        self._become(decisions.pass_time(state, now, self.readings.found, self._watch.left_out()))
        if has_new_lines:
            self.changes.tell()
        self.data.forget(record.id for record in state.unfinished())
        self.files.save_again()
        self.roster.save_again()
        if self.roster.unsaved is not None:
            self.troubles.note("the roster", self.roster.unsaved)
        with self.troubles.survived("the doctor's visits"):
            self.visits.tick()

    # Views of the state

    def orders(self, machine: str) -> Orders:
        """Everything that this machine should be doing now."""
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
            data=[self.data.order(one) for one in state.unfinished() if one.task.data and has_part(one, machine)],
            digest="",
        )
        return self.shared.sealed(orders)

    def _make_gate_orders(self) -> GateOrders:
        """Members and runs for all gates; an ended run stays in until its last files are here or overdue."""
        kept = self._kept
        runs = {
            record.id: sorted({*record.workers, *(one.source for one in record.task.data)})
            for record in kept.runs.values()
            if not record.has_ended or record.name in kept.ended_at
        }
        return GateOrders(
            block=self.roster.block,
            host=kept.host,
            members=self.roster.members(),
            runs={**runs, **self.visits.as_runs()},
            succession=self.succession.reign.succession,
        )

    def status(self, *, with_direct: bool = True) -> dict[str, Any]:
        """All machines, links and runs, as of the last reading; the host's own screen leaves out direct links."""
        shown = show_everything(self.state, self.roster, self.readings, now=self._clock(), with_direct=with_direct)
        for run in shown["runs"]:
            run["trouble"] = list(self.trouble(run["run"]))
            run["data"] = self.data.show(self._kept.runs[run["run"]])
        reign = self.succession.reign
        trouble = [*reign.lines(self.roster.machines), *self._watch.link_trouble()]
        return {**shown, "trouble": trouble, "install": self.install, "succession": reign.as_data()}

    def trouble(self, run: str) -> tuple[str, ...]:
        """Lines for people about what is wrong in a run."""
        return self._watch.trouble(run)

    async def describe(self, record: RunRecord) -> dict[str, Any]:
        """One run as plain data, after reading its folder."""
        await asyncio.to_thread(self.readings.read, [record])
        shown = show_run(record, self.readings.of(record.name), self.state.absent(self._clock()))
        return {**shown, "trouble": list(self.trouble(record.name)), "data": self.data.show(record)}
