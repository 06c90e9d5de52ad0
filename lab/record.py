"""A lab's record: all that the lab makes, written before, so that any process can remove it after a crash."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lab.cgroup_layout import LAB_DIR_PREFIX, Controller, Place
from lab.errors import LabError
from lab.namespaces import ProcessId, boot_id

STATE_DIR = Path("/run/potluck-lab")
_WRITTEN = ".json"
_HALF_WRITTEN = ".new"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRecord:
    """A switch port and the interface at the other end of its cable."""

    port: str
    interface: str
    network: str
    address: str
    mtu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """A machine of a lab; its holder is None until it has started."""

    name: str
    ports: tuple[PortRecord, ...]
    holder: ProcessId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRecord:
    """A lab: the process that owns it, and the names of everything it makes."""

    name: str
    cluster: str
    owner: ProcessId
    boot_id: str
    layout: dict[Controller, Place]
    cgroup_dirs: tuple[str, ...]
    machines: tuple[MachineRecord, ...]
    switch: ProcessId | None = None

    def is_abandoned(self) -> bool:
        """Whether the process that made this lab has ended without taking it down."""
        return self.boot_id != boot_id() or not self.owner.is_alive()

    def machine(self, name: str) -> MachineRecord:
        return next(machine for machine in self.machines if machine.name == name)

    def with_holder(self, machine: str, holder: ProcessId) -> "LabRecord":
        machines = tuple(replace(one, holder=holder) if one.name == machine else one for one in self.machines)
        return replace(self, machines=machines)


_adapter = TypeAdapter(LabRecord)


def path_of(lab: str, state_dir: Path = STATE_DIR) -> Path:
    """The file of one lab's record."""
    return state_dir / f"{lab}{_WRITTEN}"


def write(record: LabRecord, state_dir: Path = STATE_DIR) -> None:
    """Replace the lab's record in one step; a reader sees the old or the new record, never half of one."""
    path = path_of(record.name, state_dir)
    temporary = path.with_suffix(_HALF_WRITTEN)
    temporary.write_bytes(_adapter.dump_json(record, indent=1))
    temporary.replace(path)


def remove_half_written(state_dir: Path = STATE_DIR) -> None:
    """Remove temporary files of processes that were killed inside `write`.

    The caller holds the lock, as does the caller of a lab's first write. The temporary file of a lab that has a record
    stays: its owner may be writing it now.
    """
    for path in state_dir.glob(f"*{_HALF_WRITTEN}"):
        if not path.with_suffix(_WRITTEN).exists():
            path.unlink(missing_ok=True)


def read(lab: str, state_dir: Path = STATE_DIR) -> LabRecord:
    """Read one lab's record."""
    path = path_of(lab, state_dir)
    try:
        record = _adapter.validate_json(path.read_bytes())
    except ValidationError:
        raise LabError(f"{path} is not a record of a lab", fix=f"look at it, then: rm {path}") from None
    # What a record names is removed later, so a damaged record must not name anything but a lab's cgroups.
    if any(not Path(directory).name.startswith(LAB_DIR_PREFIX) for directory in record.cgroup_dirs):
        raise LabError(f"{path} names a cgroup that is not a lab's", fix=f"look at it, then: rm {path}")
    return record


def read_all(state_dir: Path = STATE_DIR) -> list[LabRecord]:
    """Every lab on record, up or abandoned, in order of name."""
    records: list[LabRecord] = []
    for path in sorted(state_dir.glob(f"*{_WRITTEN}")):
        with contextlib.suppress(FileNotFoundError):  # the lab was taken down meanwhile
            records.append(read(path.stem, state_dir))
    return records


def free_name(wanted: str, state_dir: Path = STATE_DIR) -> str:
    """The wanted name, or the next of wanted-2, wanted-3, ... that no lab has."""
    taken = {path.stem for path in state_dir.glob(f"*{_WRITTEN}")}
    candidates = [wanted, *(f"{wanted}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in candidates if name not in taken)


@contextlib.contextmanager
def locked(state_dir: Path = STATE_DIR) -> Iterator[None]:
    """Hold the lock with which one process at a time chooses names or removes leftovers."""
    state_dir.mkdir(parents=True, exist_ok=True)
    handle = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
