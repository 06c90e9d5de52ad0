"""Runs across a restart of their host: paused when the host ends in order, continued when it starts again."""

from potluck.core.checkpoint_names import checkpoint_files
from potluck.core.run_folder import RunFolder
from potluck.core.states import ENDED
from potluck.meeting.host.runs import RunRecord, WorkerRecord


def pause(record: RunRecord) -> RunRecord:
    """Mark a run in progress as paused: its workers stop after their step, and the last committed step is saved.

    A plain run stops for good: Potluck cannot know what its script has saved.
    """
    if record.task.is_plain:
        return record.with_(state="stopping")
    return record.with_(state="paused") if record.state in ("preparing", "running") else record


def has_paused(record: RunRecord, absent: frozenset[str]) -> bool:
    """Whether all workers on machines that are not absent have ended, and their files are at the host."""
    present = [worker for machine, worker in record.all_workers() if machine not in absent]
    return all(worker.state in ENDED and worker.is_home for worker in present)


def go_on(record: RunRecord) -> RunRecord:
    """Continue a paused run when the host starts again: a new start, on the same machines."""
    if record.state != "paused":
        return record
    has_checkpoint = bool(checkpoint_files(RunFolder(record.folder).checkpoints_dir))
    return record.with_(
        state="preparing" if record.task.bundle else "running",
        start_number=record.start_number + 1,
        is_resumed=record.is_resumed or has_checkpoint,
        workers={machine: [_anew(worker) for worker in workers] for machine, workers in record.workers.items()},
    )


def come_back(record: RunRecord, machine: str) -> RunRecord:
    """Reset the stopped workers of a machine that had left and is back, so that they start again."""
    workers = record.workers.get(machine, [])
    back = [_anew(worker) if worker.state == "stopped" else worker for worker in workers]
    return record if back == workers else record.with_(workers={**record.workers, machine: back})


def _anew(worker: WorkerRecord) -> WorkerRecord:
    return WorkerRecord(number=worker.number, device=worker.device)
