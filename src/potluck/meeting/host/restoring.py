"""Makes the copy of a host's state this machine's own: the host's folder of a machine that takes the host's place."""

import json
import time
from pathlib import Path

from potluck.core.atomic import write_secret
from potluck.gates.identity import Identity
from potluck.meeting.access.token import restore_token, write_metrics_key
from potluck.meeting.home import Home
from potluck.meeting.host.runs import RunRecord
from potluck.meeting.succession.ballot import Ballot
from potluck.meeting.succession.run_place import run_place
from potluck.meeting.succession.state_copy import HostStateCopy, KeptCopy

_RESTORED = "restored"
_UNHEARD_S = 10.0  # long enough to be told at once who is the host now


def restore(home: Home, state: HostStateCopy, own_runs: dict[str, str]) -> None:
    """Write a copied state into this machine's host folder; what an earlier host left there is set aside."""
    folder = home.host_dir
    records = {name: RunRecord.model_validate_json(run.record) for name, run in state.runs.items()}
    places = {name: Path(own_runs.get(name) or run_place(home, name, one.id)) for name, one in records.items()}
    for old in (folder / "roster.json", folder / "runs"):
        if old.exists():
            old.rename(folder / f".{old.name}.until-{time.time_ns()}")
    roster = json.loads(state.roster)
    for machine in roster["machines"].values():
        machine["last_heard"] = time.time() - _UNHEARD_S  # by this machine: it has heard nobody as the host yet
    write_secret(folder / "roster.json", json.dumps(roster))
    restore_token(folder, bytes.fromhex(state.token))
    write_metrics_key(folder, bytes.fromhex(state.token))
    for name, record in records.items():
        write_secret(folder / "runs" / f"{name}.json", record.with_(folder=places[name]).model_dump_json(indent=1))
    write_secret(folder / _RESTORED, str(state.rank))


def finish_takeover(home: Home, machine: str, ballot: Ballot, identity: Identity) -> None:
    """Restore the copy if this machine has become the host, and a full disk or a power cut has broken that off."""
    if ballot.orders is None or ballot.host != machine:
        return
    kept = KeptCopy(home.succession_dir, identity)
    if kept.state is not None and kept.block == ballot.orders.block and not is_restored(home, kept.state):
        restore(home, kept.state, {})


def is_restored(home: Home, state: HostStateCopy) -> bool:
    """Whether `restore` came to its end with this copy: the host's folder has it, and what the host has done since."""
    try:
        return (home.host_dir / _RESTORED).read_text() == str(state.rank)
    except FileNotFoundError:
        return False
