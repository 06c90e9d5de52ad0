"""The account of a plain run from outside: how busy its workers and their machine are, written as events.

The script writes no events, so the agent writes one event file for this machine, in the name of its first worker.
"""

import os
import platform
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from potluck import __version__
from potluck.core.errors import EventLogError
from potluck.core.run_folder import RunFolder
from potluck.core.states import Ending
from potluck.engine.steps.journal import usage_event
from potluck.events.log import EventLog
from potluck.events.types import AnyEvent, GpuUse, RunEnded, RunStarted, WorkersUsed
from potluck.machine.hardware import quota_cores, read_processor
from potluck.machine.process_time import cpu_time_s, process_with
from potluck.machine.usage import UsageMeter
from potluck.meeting.wire import Assignment, WorkerReport

_EVERY_S = 2.0
_CPU_EVERY_S = 0.5  # the processor time of a worker that has ended cannot be read any more
_MOST_FILES = 20


@dataclass(slots=True)
class _Sums:
    """What was used so far."""

    seconds: float = 0.0
    machine_cpu_s: float = 0.0
    potluck_cpu_s: float = 0.0
    """Of this process and of the gate, which encrypts what the workers send."""
    sent_bytes: float = 0.0
    received_bytes: float = 0.0
    workers_cpu_s: dict[int, float] = field(default_factory=dict)
    """By rank: the value that was read last."""
    gpus: list[list[tuple[float, GpuUse]]] = field(default_factory=list)
    """For each GPU: how long, and what was used then."""


class PlainUsage:
    """Measures while the workers of a plain run live: the agent's loop calls `look`, and `close` when all ended."""

    def __init__(
        self, run_folder: Path, script_folder: Path, machine: str, assignment: Assignment, *, gate: str
    ) -> None:
        self._script_folder = script_folder
        self._gate = process_with(gate)
        self._locks = {rank: run_folder / "logs" / f"{machine}-{rank}.lock" for rank in assignment.workers}
        self._meter = UsageMeter(every_s=_EVERY_S, read_rates=lambda: ("", {}))
        self._cores = read_processor().usable_cores
        # Under a quota, the system's times are those of other containers too.
        self._knows_others = quota_cores() is None
        self._potluck_before_s = self._potluck_cpu_s()
        self._sums = _Sums()
        self._began_at = time.time()
        self._measured_at = self._looked_at = time.monotonic()
        self._log: EventLog | None = None
        with suppress(EventLogError):  # where the disk is not writable, the run has no account
            self._log = EventLog(RunFolder(run_folder).event_file(machine, assignment.workers[0]))
        versions = {"potluck": __version__, "torch": _version("torch"), "python": platform.python_version()}
        self._write(
            RunStarted(
                run=assignment.run,
                machine=machine,
                worker=assignment.workers[0],
                process_id=os.getpid(),
                device=", ".join(assignment.devices),
                mixed_precision="no",
                versions=versions,
            )
        )

    def look(self) -> None:
        """Measure, if it is time to."""
        now = time.monotonic()
        if self._log is None or now - self._looked_at < _CPU_EVERY_S:
            return
        self._looked_at = now
        self._read_workers()
        self._measure(at_once=False)

    def close(self, reports: Collection[WorkerReport]) -> None:
        """Write the last measurement and how the workers of this machine ended."""
        if self._log is None:
            return
        self._measure(at_once=True)
        self._write(self._used(files=self._new_files()))
        states = {report.state for report in reports}
        message = next((report.message for report in reports if report.message), "")  # also that this machine left
        is_lost = bool(message) or "failed" in states
        reason: Ending = "failed" if is_lost else "stopped" if "stopped" in states else "finished"
        self._write(RunEnded(reason=reason, step=0, message=message.rpartition("\n")[2]))
        self._log.close()
        self._log = None

    def _read_workers(self) -> None:
        for rank, lock in self._locks.items():
            with suppress(OSError, ValueError):  # the worker has not started yet
                spent_s = cpu_time_s(int(lock.read_bytes()))
                if spent_s is not None:
                    self._sums.workers_cpu_s[rank] = max(spent_s, self._sums.workers_cpu_s.get(rank, 0.0))

    def _potluck_cpu_s(self) -> float:
        of_gate_s = None if self._gate is None else cpu_time_s(self._gate)
        return time.process_time() + (of_gate_s or 0.0)

    def _measure(self, *, at_once: bool) -> None:
        usage = self._meter.look(at_once=at_once)
        if usage is None:
            return
        now, sums = time.monotonic(), self._sums
        seconds, self._measured_at = now - self._measured_at, now
        sums.seconds += seconds
        sums.machine_cpu_s += usage.cpu * seconds * self._cores
        sums.potluck_cpu_s = max(sums.potluck_cpu_s, self._potluck_cpu_s() - self._potluck_before_s)
        sums.sent_bytes += usage.sent_bytes_per_s * seconds
        sums.received_bytes += usage.received_bytes_per_s * seconds
        event = usage_event(usage)
        sums.gpus = sums.gpus or [[] for _ in event.gpus]
        for one, gpu in zip(sums.gpus, event.gpus, strict=False):
            one.append((seconds, gpu))
        self._write(event)
        self._write(self._used())

    def _used(self, files: list[str] | None = None) -> WorkersUsed:
        sums = self._sums
        return WorkersUsed(
            seconds=sums.seconds,
            cores=self._cores,
            workers_cpu_s=sum(sums.workers_cpu_s.values()) + sums.potluck_cpu_s,
            machine_cpu_s=sums.machine_cpu_s if self._knows_others else None,
            sent_bytes=int(sums.sent_bytes),
            received_bytes=int(sums.received_bytes),
            gpus=[_mean(one) for one in sums.gpus if one],
            folder=_readable(self._script_folder),
            files=files or [],
        )

    def _new_files(self) -> list[str]:
        """Files that the script has written into its folder, the newest first."""
        found: list[tuple[float, str]] = []
        for folder, _, names in os.walk(self._script_folder):  # unlike rglob, it passes over a folder that vanishes
            if Path(folder).name == "__pycache__":
                continue
            for path in (Path(folder, name) for name in names):
                with suppress(OSError):
                    if path.is_file() and path.stat().st_mtime >= self._began_at:
                        found.append((-path.stat().st_mtime, _readable(path.relative_to(self._script_folder))))
        return [name for _, name in sorted(found)[:_MOST_FILES]]

    def _write(self, event: AnyEvent) -> None:
        if self._log is not None:
            with suppress(EventLogError):  # the disk is full: the last event holds all sums
                self._log.append(event)


def _readable(path: Path) -> str:
    """The path as text; bytes that are no UTF-8 are replaced, since an event file holds none."""
    return os.fsencode(path).decode(errors="replace")


def _mean(parts: list[tuple[float, GpuUse]]) -> GpuUse:
    """The means over time of what one GPU reported, and the most memory."""
    last = parts[-1][1]

    def mean(values: list[tuple[float, float | None]]) -> float | None:
        known = [(seconds, value) for seconds, value in values if value is not None]
        total_s = sum(seconds for seconds, _ in known)
        return sum(seconds * value for seconds, value in known) / total_s if total_s else None

    return GpuUse(
        name=last.name,
        busy=mean([(seconds, one.busy) for seconds, one in parts]),
        memory_bytes=max((one.memory_bytes for _, one in parts if one.memory_bytes is not None), default=None),
        memory_total_bytes=last.memory_total_bytes,
        power_w=mean([(seconds, one.power_w) for seconds, one in parts]),
    )


def _version(package: str) -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""
