"""Who is here, what runs and how fast, as plain data for people and scripts: no secret in it."""

from typing import Any

from potluck.meeting.news import read_length, read_pace
from potluck.meeting.pairs import pair_links
from potluck.meeting.roster import Roster
from potluck.meeting.runs import RunRecord, is_home


def show_everything(
    roster: Roster, runs: list[RunRecord], absent: frozenset[str], *, host: str, now: float
) -> dict[str, Any]:
    """Everyone and everything."""
    unfinished = [record for record in runs if not record.has_ended]
    live: dict[str, float] = {}
    for record in unfinished:
        live |= speeds(record)
    return {
        "host": host,
        "machines": [
            {
                "machine": name,
                "state": machine.state(now),
                "run": next((record.name for record in unfinished if name in record.workers), None),
                "os": machine.facts.os,
                "address": machine.facts.address,
                "loopback": roster.address_of(name),
                "cores": machine.facts.cores,
                "devices": machine.devices,
                "samples_per_s": live.get(name, machine.samples_per_s),
                "last_heard_s": round(max(0.0, now - machine.last_heard), 1),
                "versions": machine.facts.versions,
                "trains": machine.facts.can_train,
            }
            for name, machine in roster.machines.items()
        ],
        "links": pair_links(roster),
        "runs": [show_run(record, absent) for record in runs],
    }


def show_run(record: RunRecord, absent: frozenset[str]) -> dict[str, Any]:
    """One run."""
    pace = read_pace(record.folder)
    return {
        "run": record.name,
        "state": record.state,
        "message": record.message,
        "started_by": record.started_by,
        "started_at": record.started_at,
        "folder": str(record.folder),
        "settings": record.task.settings or {"script": record.task.entry, "arguments": record.task.arguments},
        "what": record.task.entry or str((record.task.settings or {}).get("model", "")),
        "step": pace.step,
        "last_step": read_length(record.folder),
        "loss": pace.loss,
        "samples_per_s": round(pace.samples_per_s, 1),
        "own_samples_per_s": {name: round(value, 1) for name, value in (pace.own_samples_per_s or {}).items()},
        "is_direct": record.is_direct,
        "workers": {
            machine: [worker.model_dump() for worker in workers] for machine, workers in record.workers.items()
        },
        "is_home": is_home(record, absent),
    }


def speeds(record: RunRecord) -> dict[str, float]:
    """What each machine does of a run's batches, in samples a second."""
    own = read_pace(record.folder).own_samples_per_s or {}
    parts = {
        machine: [own[name] for worker in workers if (name := f"{machine}-{worker.number}") in own]
        for machine, workers in record.workers.items()
    }
    return {machine: round(sum(found), 1) for machine, found in parts.items() if found}
