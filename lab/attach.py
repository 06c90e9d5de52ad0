"""Finding the machines of a lab that another process keeps up."""

from pathlib import Path

from lab import record
from lab.errors import LabError, did_you_mean
from lab.machine import Machine
from lab.record import STATE_DIR, LabRecord

HOW_TO_START = "start one in another terminal: python -m lab up laptops"


def labs_up(state_dir: Path = STATE_DIR) -> list[LabRecord]:
    """Labs whose owner process is alive, in order of name."""
    return [lab for lab in record.read_all(state_dir) if not lab.is_abandoned()]


def find_lab(labs: list[LabRecord], wanted: str | None) -> LabRecord:
    """The lab called `wanted`, or the only one."""
    names = [lab.name for lab in labs]
    if not labs:
        raise LabError("no lab is up", fix=HOW_TO_START)
    if wanted is None and len(labs) > 1:
        raise LabError(f"{len(labs)} labs are up", fix=f"say which with --lab: {', '.join(names)}")
    if wanted is not None and wanted not in names:
        raise LabError(f"no lab called {wanted!r} is up", fix=did_you_mean(wanted, names))
    return labs[0] if wanted is None else labs[names.index(wanted)]


def find_machine(labs: list[LabRecord], machine: str, wanted_lab: str | None) -> Machine:
    """The machine of that name in the lab `wanted_lab`, or in the only lab that has one."""
    if wanted_lab is not None or len(labs) < 2:
        labs = [find_lab(labs, wanted_lab)]
    owners = [lab for lab in labs if any(one.name == machine for one in lab.machines)]
    if len(owners) > 1:
        names = ", ".join(lab.name for lab in owners)
        raise LabError(f"{len(owners)} labs that are up have a {machine!r}", fix=f"say which with --lab: {names}")
    if not owners:
        known = {one.name for lab in labs for one in lab.machines}
        raise LabError(f"no machine is called {machine!r}", fix=did_you_mean(machine, known))
    return Machine(owners[0], machine)
