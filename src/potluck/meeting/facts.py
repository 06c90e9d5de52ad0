"""What a machine says of itself: versions without importing torch, cores, the tool of its firewall, its devices."""

import getpass
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from potluck.core.version import __version__
from potluck.meeting.wire import Facts

_FIREWALLS = ("ufw", "firewall-cmd", "nft")
# In a process of its own: one that has asked for GPUs cannot fork workers that use them.
_COUNT_DEVICES = (
    "import torch; kind = torch.accelerator.current_accelerator(check_available=True); "
    "print(*([f'{kind.type}:{i}' for i in range(torch.accelerator.device_count())] if kind else ['cpu']))"
)


def read_facts(machine: str, machine_id: str, address: str, *, can_train: bool = True) -> Facts:
    """This machine, for the roster and for the checks at the door."""
    return Facts(
        machine=machine,
        machine_id=machine_id,
        os=_os_name(),
        cores=len(os.sched_getaffinity(0)),
        address=address,
        firewall=next((tool for tool in _FIREWALLS if shutil.which(tool)), ""),
        user=_user(),
        versions=read_versions(),
        can_train=can_train,
    )


def read_versions() -> dict[str, str]:
    """What must fit together on all machines."""
    found = {"potluck": __version__, "python": platform.python_version()}
    for package in ("torch", "torchft"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "missing"
    return found


def find_devices() -> list[str]:
    """This machine's accelerators, else its processor. Takes as long as importing torch where there may be one."""
    if "+cpu" in read_versions()["torch"]:
        return ["cpu"]
    done = subprocess.run([sys.executable, "-c", _COUNT_DEVICES], capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.split() or ["cpu"]


def _os_name() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        name = platform.system()
    release = Path("/proc/sys/kernel/osrelease")
    is_wsl = release.is_file() and "microsoft" in release.read_text().lower()
    return f"{name} (WSL2)" if is_wsl else name


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without an entry
        return str(os.getuid())
