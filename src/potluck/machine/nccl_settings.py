"""What NCCL finds on this machine by itself: InfiniBand devices, and a user's settings in NCCL's own files."""

from collections.abc import Sequence
from pathlib import Path

_INFINIBAND = Path("/sys/class/infiniband")
_SYSTEM_FILE = Path("/etc/nccl.conf")


def infiniband_devices(folder: Path = _INFINIBAND) -> tuple[str, ...]:
    """The names of InfiniBand and RoCE devices: Linux lists both here."""
    try:
        return tuple(sorted(one.name for one in folder.iterdir()))
    except OSError:
        return ()


def read_nccl_files(files: Sequence[Path] | None = None, *, named: str = "") -> dict[str, str]:
    """The variables in NCCL's files; in NCCL, the environment overrides them. `named`: NCCL_CONF_FILE, if it is set."""
    if files is None:
        files = (_SYSTEM_FILE, Path(named) if named else Path.home() / ".nccl.conf")
    found: dict[str, str] = {}
    for file in files:
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                found[name.strip()] = value
    return found
