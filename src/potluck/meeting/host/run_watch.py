"""The host's watch over its runs: finds stalls and machines that cannot reach each other, and says what to type."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from potluck.core.words import listed
from potluck.engine.group.direct_probe import NO_ANSWER
from potluck.meeting.host.pairs import link_lines, troubled_links
from potluck.meeting.host.reachable import Pair, largest_set
from potluck.meeting.host.readings import RunReading, RunReadings
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.runs import RunRecord
from potluck.meeting.transfer.run_tail import Pace

STALLED_S = 15.0  # terminals print it a moment later: 20 s is the promise
_LASTING_S = 4.0  # a link that is down for less is just being dialled again
_LOOK_EVERY_S = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the watch found in a run."""

    trouble: tuple[str, ...] = ()
    """Lines for people, on every terminal; empty while all goes well."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Machines that cannot take part now, and why."""


class RunWatch:
    """Looks at all runs, once a second at most."""

    def __init__(self, roster: MachineRoster, host: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._roster = roster
        self._host = host
        self._clock = clock
        self._looked_at = float("-inf")
        self._found: dict[str, Watched] = {}
        self._steps: dict[str, tuple[int, float]] = {}
        self._ways: dict[Pair, tuple[str, float]] = {}
        self._lasting: list[dict[str, Any]] = []
        self._undialled: dict[str, dict[Pair, str]] = {}

    def trouble(self, run: str) -> tuple[str, ...]:
        return self._found[run].trouble if run in self._found else ()

    def link_trouble(self, machine: str | None = None) -> tuple[str, ...]:
        """Lines about links that are not direct and have not been for a while: all, or those of one machine."""
        links = [link for link in self._lasting if machine is None or machine in link["machines"]]
        return tuple(link_lines({"links": links, "host": self._host}, with_direct=False))

    def left_out(self) -> dict[str, Mapping[str, str]]:
        """By run: machines that cannot take part now, and why."""
        return {run: watched.left_out for run, watched in self._found.items()}

    def look(self, records: Iterable[RunRecord], absent: frozenset[str], readings: RunReadings) -> bool:
        """Find what is wrong with each of these runs, unless the last look was a moment ago; True if lines changed."""
        now = self._clock()
        if now - self._looked_at < _LOOK_EVERY_S:
            return False
        self._looked_at = now
        before = self._lines()
        links = troubled_links(self._roster)
        self._note_ways(links, now)
        self._lasting = [link for link in links if self._lasts(frozenset(link["machines"]), now)]
        self._found = {record.name: self._look_at(record, absent, now, readings.of(record.name)) for record in records}
        for kept in (self._steps, self._undialled):
            for run in kept.keys() - self._found.keys():
                del kept[run]
        return self._lines() != before

    def _lines(self) -> tuple[object, ...]:
        return self.link_trouble(), {run: watched.trouble for run, watched in self._found.items() if watched.trouble}

    def _note_ways(self, links: list[dict[str, Any]], now: float) -> None:
        before, self._ways = self._ways, {}
        for link in links:
            pair = frozenset(link["machines"])
            way, since = before.get(pair, ("", now))
            self._ways[pair] = (link["way"], since if way == link["way"] else now)
        for pair in before.keys() - self._ways.keys():  # direct again, or one of the two is gone
            for known in self._undialled.values():
                known.pop(pair, None)

    def _look_at(self, record: RunRecord, absent: frozenset[str], now: float, reading: RunReading) -> Watched:
        if record.state not in ("running", "stopping"):
            return Watched()
        pace = reading.pace
        step, since = self._steps.get(record.name, (-1, now))
        if step != pace.step:
            step, since = self._steps[record.name] = pace.step, now
        machines = [name for name in record.workers if name not in absent]
        lasting = [link for link in self._lasting if set(link["machines"]) <= set(machines)]
        # Gradients that go past the gates cannot be relayed by the host.
        cut = {frozenset(one["machines"]) for one in lasting if one["way"] == "down" or record.is_direct}
        undialled = self._note_undialled(record, pace, machines)
        speeds = {name: self._roster.machines[name].samples_per_s or 0.0 for name in machines}
        left_out = {}
        if record.state == "running" and not record.task.is_plain:  # which cannot leave a machine out
            chosen = largest_set(machines, cut | undialled.keys(), speeds)
            left_out = {name: _why(name, chosen, cut, undialled) for name in machines if name not in chosen}
        lines = [f"{name} takes no part in run {record.name}: {why}" for name, why in left_out.items()]
        lines += _dial_lines(undialled)
        lines += link_lines({"links": lasting, "host": self._host}, with_direct=False)
        if reading.full_disk is not None:  # new events wait for disk space, so a stall cannot be seen
            lines.append(f"{reading.full_disk}; training goes on meanwhile, and what is not written yet is kept")
        elif now - since > STALLED_S:
            lines += _stall_lines(record, pace, absent | left_out.keys())
        return Watched(trouble=tuple(lines), left_out=left_out)

    def _lasts(self, pair: Pair, now: float) -> bool:
        _, since = self._ways[pair]
        return now - since > _LASTING_S

    def _note_undialled(self, record: RunRecord, pace: Pace, machines: list[str]) -> dict[Pair, str]:
        """Pairs of present machines whose workers get no answer from each other's port for gradients.

        Nothing dials these ports again once a machine is left out: a pair stays until a bad link between the two gates
        has recovered, or until one of the two machines is absent.
        """
        known = self._undialled.get(record.name, {})
        for worker, waiting in pace.waiting.items():
            machine = worker.rpartition("-")[0]
            silent = {other: why for other, why in waiting.unreachable.items() if why.startswith(NO_ANSWER)}
            known = {**known, **{frozenset((machine, other)): why for other, why in silent.items()}}
        known = {pair: why for pair, why in known.items() if pair <= set(machines)}
        self._undialled[record.name] = known
        return known


def _why(name: str, chosen: set[str], cut: set[Pair], undialled: Mapping[Pair, str]) -> str:
    others = sorted({other for pair in cut | undialled.keys() if name in pair for other in pair if other in chosen})
    return f"it and {' and '.join(others)} cannot reach each other"


def _dial_lines(undialled: Mapping[Pair, str]) -> list[str]:
    return [
        f"{' and '.join(sorted(pair))} cannot exchange gradients directly: {why}; leave --direct out, "
        "or open the firewall between them and join again"
        for pair, why in undialled.items()
    ]


def _stall_lines(record: RunRecord, pace: Pace, gone: Iterable[str]) -> list[str]:
    """Lines that say which workers wait for which. None while all compute: a step or an evaluation may take long."""
    workers = [
        f"{machine}-{worker.number}"
        for machine, own in record.workers.items()
        if machine not in gone
        for worker in own
        if worker.state == "running"
    ]
    waiting = [name for name in workers if name in pace.waiting]
    if not waiting:
        return []
    busy = [name for name in workers if name not in pace.waiting]
    verb = "waits" if len(waiting) == 1 else "wait"
    said = (
        f"run {record.name} has made no step for more than {STALLED_S:.0f} s (step {pace.step}): "
        f"{listed(waiting)} {verb} for {listed(busy) if busy else 'each other'}"
    )
    problems = {pace.waiting[name].problem for name in waiting} - {""}
    lines = [said, *(f"  what they met: {problem}" for problem in sorted(problems)[:2])]
    return [*lines, "  see what is wrong between the machines: potluck doctor --cluster"]
