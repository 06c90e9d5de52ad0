"""Decisions about a plain run, whose script does not use Potluck: the loss of one worker ends it on all machines."""

from potluck.core.states import ENDED
from potluck.doctor.lost_peer import tells_of_lost_peer
from potluck.meeting.host.runs import RunRecord, WorkerRecord


def judge_plain(record: RunRecord, absent: frozenset[str]) -> RunRecord:
    """The run with its state derived from its workers' states.

    It begins when all workers are ready and has finished when all have finished. The first loss of a worker that is
    not itself the effect of another loss is kept as the run's message: the cause, if the run fails.
    """
    if record.has_ended or not record.workers:
        return record
    present = [worker for machine, worker in record.all_workers() if machine not in absent]
    if record.state != "stopping":
        record = _note_loss(record, absent)
    if record.state == "preparing":
        return _judge_preparing(record, present)
    if not all(worker.state in ENDED for worker in present):
        return record
    missed = sorted(machine for machine in record.workers if machine in absent)
    if all(worker.state == "finished" for _, worker in record.all_workers()):
        return record.with_(state="finished")
    if record.state == "stopping":
        return record.with_(state="stopped", message="", missed_the_end=missed)
    return record.with_(state="failed", message=record.message or _any_loss(record), missed_the_end=missed)


def _judge_preparing(record: RunRecord, present: list[WorkerRecord]) -> RunRecord:
    if not present or any(worker.state not in ("ready", "failed", "stopped") for worker in present):
        return record
    messages = [_told(machine, worker.message) for machine, worker in record.all_workers() if worker.message]
    if messages or record.message:
        return record.with_(state="failed", message="\n".join(dict.fromkeys(messages)) or record.message)
    return record.with_(state="running")


def _note_loss(record: RunRecord, absent: frozenset[str]) -> RunRecord:
    """Mark the workers of absent machines as failed, and keep the first cause of a loss."""
    workers = {
        machine: [_lost(worker, machine) if machine in absent else worker for worker in own]
        for machine, own in record.workers.items()
    }
    if workers != record.workers:
        record = record.with_(workers=workers)
    return record if record.message else record.with_(message=_cause(record))


def _lost(worker: WorkerRecord, machine: str) -> WorkerRecord:
    if worker.state in ENDED:
        return worker
    return worker.model_copy(
        update={"state": "failed", "message": f"{machine} was lost: the host hears nothing from it any more"}
    )


def _cause(record: RunRecord) -> str:
    """The first loss, by rank, that is not the effect of another; empty if there is none yet."""
    for machine, worker in record.all_workers():
        if worker.state in ("failed", "stopped") and worker.message and not tells_of_lost_peer(worker.message):
            return _told(machine, worker.message)
    return ""


def _any_loss(record: RunRecord) -> str:
    """With no cause in sight: the first worker that lost its connection to the others."""
    return next((_told(name, one.message) for name, one in record.all_workers() if one.state == "failed"), "")


def _told(machine: str, message: str) -> str:
    return message if message.startswith(machine) else f"{machine}: {message}"
