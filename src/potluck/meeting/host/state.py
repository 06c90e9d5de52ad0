"""The host's state as frozen data, and its transition for each message: pure functions; no disk, clock or waiting."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from potluck.core.errors import MeetingError, did_you_mean
from potluck.meeting.host.pausing import come_back, pause
from potluck.meeting.host.plain_runs import judge_plain
from potluck.meeting.host.readings import RunReading
from potluck.meeting.host.reported_links import ReportedLinks
from potluck.meeting.host.roster import AWAY_AFTER_S, LEAVE_S, Machine
from potluck.meeting.host.runs import RunRecord, add_machine, is_home, judge, lower_expectation, take_report, wants
from potluck.meeting.wire import Report

_KEEP_LIGHTHOUSE_S = 60.0
_SLEPT_S = 6.0  # without a tick, of which there is one a second


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The joined machines and the runs, at one moment."""

    host: str
    began_at: float
    """When the host started or, after it slept, woke up, by its clock."""
    ticked_at: float | None = None
    machines: Mapping[str, Machine]
    runs: Mapping[str, RunRecord]
    ended_at: Mapping[str, float] = field(default_factory=dict)
    """When runs ended of which machines may still have files to send, by the run's name."""

    def has_slept(self, now: float) -> bool:
        """Whether the host's computer was suspended since the last tick, or its clock set forward."""
        return self.ticked_at is not None and now - self.ticked_at > _SLEPT_S

    def unfinished(self) -> list[RunRecord]:
        return [record for record in self.runs.values() if not record.has_ended]

    def find_run(self, name: str) -> RunRecord:
        if name not in self.runs:
            raise MeetingError(
                f"there is no run {name!r}",
                fix=did_you_mean(name, self.runs) if self.runs else "start one: potluck train",
            )
        return self.runs[name]

    def absent(self, now: float) -> frozenset[str]:
        """Machines of runs that are away, have left or are off the roster."""
        gone: tuple[str, ...] = ("away", "left")
        if now - self.began_at < AWAY_AFTER_S or self.has_slept(now):
            gone = ("left",)  # the host has just started or slept: machines had no time yet to send a request
        present = {name for name, machine in self.machines.items() if machine.state(now) not in gone}
        return frozenset({name for record in self.runs.values() for name in record.workers} - present)


def put_run(state: HostState, record: RunRecord, now: float) -> HostState:
    """Add a run, or replace its record; notes when the run ends."""
    before = state.runs.get(record.name)
    if before == record:
        return state
    ended_at = dict(state.ended_at)
    if not record.has_ended:
        ended_at.pop(record.name, None)
    elif before is None or not before.has_ended:
        ended_at[record.name] = now
    return replace(state, runs={**state.runs, record.name: record}, ended_at=ended_at)


def hear(state: HostState, machine: str, now: float) -> HostState:
    """A machine has sent a request: one that was away or had left is back, and takes part in unfinished runs."""
    was = state.machines[machine].state(now)
    state = _change(state, machine, last_heard=now, has_left=False)
    if was == "left":
        for record in state.unfinished():
            if not record.task.is_plain:
                state = put_run(state, come_back(record, machine), now)
    return _add_to_runs(state, machine, now) if was in ("away", "left") else state


def take(state: HostState, machine: str, report: Report, address: str, now: float) -> HostState:
    """Apply a machine's report of itself and its workers; `address` is where the report came from."""
    state = hear(state, machine, now)
    known = state.machines[machine]
    changes: dict[str, object] = {"links": ReportedLinks.of(report.links) if report.links else known.links}
    if report.reach is not None:
        changes["reach"] = report.reach.model_copy(update={"seen_at": address or None})
    has_devices = report.devices is not None and report.devices != known.devices
    if has_devices:
        changes["devices"] = report.devices
    if report.devices is not None and report.cards != known.cards:
        changes["cards"] = report.cards
    state = _change(state, machine, **changes)
    if has_devices:
        state = _add_to_runs(state, machine, now)
    for worker in report.workers:
        if worker.run in state.runs:
            state = put_run(state, take_report(state.runs[worker.run], machine, worker), now)
    if report.is_leaving:
        state = _part_with(state, machine)
    return _judge(state, now)


def ask_to_leave(state: HostState, machine: str, by: str, now: float) -> HostState:
    """Remove an absent machine at once; ask a present one to leave after its step. Sent away, it is removed then."""
    if machine not in state.machines:
        raise MeetingError(f"no machine is called {machine!r}", fix=did_you_mean(machine, state.machines))
    if machine == state.host:
        raise MeetingError(f"{machine} is the host itself", fix=f"end potluck host on {machine} with Ctrl-C")
    if state.machines[machine].state(now) in ("away", "left"):
        return _without(state, machine)
    return _change(state, machine, leaves_by=now + LEAVE_S, is_sent_away=by != machine)


def stop_run(state: HostState, name: str, now: float) -> HostState:
    """All workers of a run stop after their step."""
    record = state.find_run(name)
    return state if record.has_ended else _judge(put_run(state, record.with_(state="stopping"), now), now)


def pause_runs(state: HostState, now: float) -> HostState:
    """The host is about to end: every run stops after its step, to go on when the host starts again."""
    for record in state.unfinished():
        state = put_run(state, pause(record), now)
    return state


def pass_time(
    state: HostState, now: float, readings: Mapping[str, RunReading], left_out: Mapping[str, Mapping[str, str]]
) -> HostState:
    """Apply the passing of time: overdue leaves, machines that are away or left out, and readings of run folders."""
    state = replace(state, began_at=now if state.has_slept(now) else state.began_at, ticked_at=now)
    own = state.machines.get(state.host)
    if own is not None and not own.facts.can_train:
        # A host that does not train has no agent that sends requests: this call counts as its sign of life.
        state = _change(state, state.host, last_heard=now, has_left=False)
    for name, machine in state.machines.items():
        if machine.leaves_by is not None and machine.leaves_by < now:  # it has not left in time: it counts as gone
            state = _part_with(state, name)
    for record in state.unfinished():
        if record.name in left_out and not record.task.is_plain:
            state = put_run(state, record.with_(left_out=dict(left_out[record.name])), now)
    state = _judge(state, now)
    absent = state.absent(now)
    for record in state.unfinished():
        if record.expected > 1 and record.name in readings and not record.task.is_plain:
            has_stepped = readings[record.name].pace.step > 0
            state = put_run(state, lower_expectation(record, absent, has_stepped=has_stepped), now)
    for name, ended_at in state.ended_at.items():
        if name in readings:
            state = _note_speeds(state, readings[name].speeds(state.runs[name]))
        if is_home(state.runs[name], absent) or now - ended_at > _KEEP_LIGHTHOUSE_S:
            state = replace(state, ended_at={run: at for run, at in state.ended_at.items() if run != name})
    return state


def _judge(state: HostState, now: float) -> HostState:
    unfinished = state.unfinished()
    absent = state.absent(now) if unfinished else frozenset()
    for record in unfinished:
        decide = judge_plain if record.task.is_plain else judge
        state = put_run(state, decide(record, absent), now)
    return state


def _add_to_runs(state: HostState, machine: str, now: float) -> HostState:
    """Add a machine that comes late to an unfinished run, if that run takes all machines and does not exclude it."""
    known = state.machines[machine]
    unfinished = state.unfinished()
    if known.devices is None or not known.facts.can_train or any(machine in record.workers for record in unfinished):
        return state
    for record in unfinished:
        if wants(record, machine) and record.machines is None and not record.task.is_plain:
            forced = (record.task.settings or {}).get("device")
            devices = [forced] if forced else known.devices
            return put_run(state, add_machine(record, machine, devices, known.cards), now)
    return state


def _note_speeds(state: HostState, speeds: Mapping[str, float]) -> HostState:
    """Keep each machine's own speed in the run with the machine."""
    for machine, samples_per_s in speeds.items():
        if machine in state.machines:
            state = _change(state, machine, samples_per_s=samples_per_s)
    return state


def _part_with(state: HostState, machine: str) -> HostState:
    """A machine is gone: remove it if it was sent away, else mark it as left, so that it may come back."""
    if state.machines[machine].is_sent_away:
        return _without(state, machine)
    return _change(state, machine, has_left=True, leaves_by=None)


def _change(state: HostState, machine: str, **changes: object) -> HostState:
    known = state.machines[machine].model_copy(update=changes)
    return replace(state, machines={**state.machines, machine: known})


def _without(state: HostState, machine: str) -> HostState:
    return replace(state, machines={name: known for name, known in state.machines.items() if name != machine})
