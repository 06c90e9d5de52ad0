"""A run on several machines, as the host keeps it, and the decisions about it: pure functions from record to record."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field

from potluck.core.cards import label
from potluck.core.states import ENDED, Order, RunPhase, WorkerPhase
from potluck.meeting.wire import Assignment, Name, PlainPlace, Port, RunTask, WorkerReport


class WorkerRecord(BaseModel):
    """One worker of a run: its number, its device and its state."""

    model_config = ConfigDict(frozen=True)

    number: int
    device: str
    card: str = ""
    """What people call the device's card, such as RTX 3070; empty for the CPU, and where it is not known."""
    state: WorkerPhase = "preparing"
    message: str = ""
    restarts: int = 0
    is_home: bool = False


class RunRecord(BaseModel):
    """One run: its task, its workers, and its state."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    name: Name
    id: Name
    task: RunTask
    started_by: str
    started_at: float
    folder: Path
    secret: str
    lighthouse_port: Port
    is_direct: bool = False
    machines: list[str] | None = None
    """The only machines that take part; None means all."""
    without: list[str] = Field(default_factory=list)
    workers: dict[str, list[WorkerRecord]] = Field(default_factory=dict)
    reserved: dict[str, list[int]] = Field(default_factory=dict)
    """Worker numbers that machines had before the run was resumed: their files continue under the same names."""
    expected: int = 1
    start_number: int = 1
    """Counts the run's starts: a resume is a new start, and so is continuing after a pause of the host."""
    is_resumed: bool = False
    begins_with_state: bool = False
    """The run began with a checkpoint file from outside (--resume-from), which every machine fetches from the host."""
    state: RunPhase = "preparing"
    message: str = ""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Machines that cannot reach some of the others, and why: their workers rest until they can."""
    missed_the_end: list[str] = Field(default_factory=list)
    """Machines that were away when the run ended: workers that still train there are stopped when they come back."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def is_broken(self) -> bool:
        """Whether a plain run has lost a worker, and so ends on all machines."""
        return self.task.is_plain and any(worker.state in ("failed", "stopped") for _, worker in self.all_workers())

    def all_workers(self) -> list[tuple[str, WorkerRecord]]:
        return [(machine, worker) for machine, workers in self.workers.items() for worker in workers]

    def with_(self, **changes: object) -> "RunRecord":
        return self.model_copy(update=changes)


def wants(record: RunRecord, machine: str) -> bool:
    """Whether the request that started the run includes this machine."""
    return machine not in record.without and (record.machines is None or machine in record.machines)


def add_machine(
    record: RunRecord, machine: str, devices: list[str], cards: Mapping[str, str] = MappingProxyType({})
) -> RunRecord:
    """Give a machine's devices the next worker numbers; a machine that comes back keeps its own.

    `cards`: the names of the machine's cards by device, where they are known.
    """
    if machine in record.workers or record.has_ended or record.state in ("paused", "stopping"):
        return record
    taken = [*(worker.number for _, worker in record.all_workers()), *chain.from_iterable(record.reserved.values())]
    first = 1 + max(taken, default=-1)
    numbers = record.reserved.get(machine, [])[: len(devices)]
    numbers = numbers + list(range(first, first + len(devices) - len(numbers)))
    workers = [
        WorkerRecord(number=number, device=device, card="" if (name := label(device, cards)) == device else name)
        for number, device in zip(numbers, devices, strict=True)
    ]
    return record.with_(workers={**record.workers, machine: workers})


def take_report(record: RunRecord, machine: str, report: WorkerReport) -> RunRecord:
    """Apply a machine's report of one of its workers; a report about an earlier start is ignored."""
    if report.start_number != record.start_number:
        return record
    workers = record.workers.get(machine, [])
    changed = [
        worker.model_copy(update=report.model_dump(exclude={"run", "worker", "start_number"}))
        if worker.number == report.worker
        else worker
        for worker in workers
    ]
    return record if changed == workers else record.with_(workers={**record.workers, machine: changed})


def judge(record: RunRecord, absent: frozenset[str]) -> RunRecord:
    """The run with its state derived from its workers' states; workers of absent machines are not waited for."""
    if record.has_ended or record.state == "paused" or not record.workers:
        return record
    absent |= record.left_out.keys()
    present = [worker for machine, worker in record.all_workers() if machine not in absent]
    if record.state == "preparing":
        return _judge_preparing(record, present)
    if any(worker.state == "finished" for _, worker in record.all_workers()):
        return record.with_(state="finished", missed_the_end=sorted(absent & record.workers.keys()))
    if present and all(worker.state == "failed" for worker in present):
        return record.with_(state="failed", message=_failures(record)[0])
    # With all machines absent the run goes on, unless it was asked to stop: they may still be training.
    if all(worker.state in ENDED for worker in present) and (present or record.state == "stopping"):
        return record.with_(state="stopped", missed_the_end=sorted(absent & record.workers.keys()))
    return record


def _judge_preparing(record: RunRecord, present: list[WorkerRecord]) -> RunRecord:
    """Start the run when all present workers are ready; if any has failed, the run fails, and names all that did."""
    if not present or any(worker.state not in ("ready", "failed") for worker in present):
        return record
    failures = _failures(record)
    if failures:
        return record.with_(state="failed", message="\n".join(dict.fromkeys(failures)))
    return record.with_(state="running", expected=len(present))


def _failures(record: RunRecord) -> list[str]:
    return [
        worker.message if worker.message.startswith(machine) else f"{machine}: {worker.message}"
        for machine, worker in record.all_workers()
        if worker.state == "failed"
    ]


def lower_expectation(record: RunRecord, absent: frozenset[str], *, has_stepped: bool) -> RunRecord:
    """Before the first step all workers wait for `expected` workers: lower it if some are gone or have ended."""
    if record.state != "running" or has_stepped:
        return record
    absent |= record.left_out.keys()
    alive = [w for machine, w in record.all_workers() if machine not in absent and w.state not in ENDED]
    if 0 < len(alive) < record.expected:
        return record.with_(expected=len(alive))
    return record


def is_home(record: RunRecord, absent: frozenset[str]) -> bool:
    """Whether all files of workers on machines that are not absent have arrived."""
    return all(worker.is_home for machine, worker in record.all_workers() if machine not in absent)


def phase_for(record: RunRecord, machine: str) -> Order:
    """The order for a machine. `end`: the run has finished; its last workers end by themselves, none is started."""
    if record.state == "running" and record.is_broken:
        return "stop"
    if record.state == "running" and machine in record.left_out:
        return "rest"
    if record.state in ("preparing", "running"):
        return "prepare" if record.state == "preparing" else "go"
    return "end" if record.state == "finished" and machine not in record.missed_the_end else "stop"


def _fetches_checkpoint(record: RunRecord, machine: str, host: str) -> bool:
    """Whether a machine fetches the host's newest checkpoint before its workers start.

    In a resumed run one machine does if the host does not train, and the others heal from it. A file from outside goes
    to every machine: if it is of another model, all workers say so, instead of waiting for one that cannot start.
    """
    if record.begins_with_state:
        return machine != host
    return record.is_resumed and host not in record.workers and machine == next(iter(record.workers))


def assignment_for(record: RunRecord, machine: str, *, host: str) -> Assignment | None:
    """A machine's part in this run; None if it has nothing to do or to send for the run."""
    workers = record.workers.get(machine)
    is_over = record.has_ended or record.state == "paused"
    if not workers or (is_over and all(worker.is_home for worker in workers)):
        return None
    return Assignment(
        run=record.name,
        run_id=record.id,
        phase=phase_for(record, machine),
        task=record.task,
        started_by=record.started_by,
        workers=[worker.number for worker in workers],
        devices=[worker.device for worker in workers],
        expected=record.expected,
        lighthouse_port=record.lighthouse_port,
        secret=record.secret,
        runs_dir=str(record.folder.parent) if machine == host else None,
        start_number=record.start_number,
        is_resumed=record.is_resumed,
        is_direct=record.is_direct,
        fetches_checkpoint=_fetches_checkpoint(record, machine, host),
        plain=_plain_place(record, machine) if record.task.is_plain else None,
    )


def _plain_place(record: RunRecord, machine: str) -> PlainPlace:
    machines = list(record.workers)
    return PlainPlace(
        master=machines[0],
        node_rank=machines.index(machine),
        num_nodes=len(machines),
        world_size=len(record.all_workers()),
    )
