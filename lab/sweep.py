"""Remove a lab by its record: kill every process in its cgroups, which ends its namespaces, then remove the cgroups."""

import time
from pathlib import Path

from lab import cgroups, record
from lab.errors import LabError
from lab.namespaces import boot_id
from lab.record import STATE_DIR, LabRecord

END_S = 5.0


def remove(lab: LabRecord, state_dir: Path = STATE_DIR) -> None:
    """Take a lab down, whichever process made it. Only what its record names is touched."""
    if lab.boot_id == boot_id():  # after a reboot only the record is left
        stuck = cgroups.remove_directories(list(lab.cgroup_dirs))
        if stuck:
            raise LabError(f"lab {lab.name!r}: {', '.join(stuck)} would not go", fix="try again: python -m lab down")
        if not lab.owner.is_alive():  # a living owner has to collect its own children first
            _wait_for_holders(lab)
    record.path_of(lab.name, state_dir).unlink(missing_ok=True)


def remove_abandoned(state_dir: Path = STATE_DIR) -> list[str]:
    """Take down the labs whose owner has died, and return their names. The caller holds the lock."""
    abandoned = [lab for lab in record.read_all(state_dir) if lab.is_abandoned()]
    for lab in abandoned:
        remove(lab, state_dir)
    record.remove_half_written(state_dir)
    return [lab.name for lab in abandoned]


def _wait_for_holders(lab: LabRecord) -> None:
    """Wait until the machines are gone: a holder ends after every process of its machine."""
    deadline = time.monotonic() + END_S
    holders = [holder for holder in (lab.switch, *(machine.holder for machine in lab.machines)) if holder]
    while any(holder.is_alive() for holder in holders) and time.monotonic() < deadline:
        time.sleep(0.002)
