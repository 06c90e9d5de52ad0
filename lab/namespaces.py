"""Start processes inside a machine's namespaces, with two system calls that Python 3.10 lacks: unshare and setns."""

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

CLONE_NEWPID = 0x20000000
ENTERED = ("mnt", "uts", "ipc", "net")

# Joins the cgroups named before "--" (0 means the process that writes), then becomes the command after it.
JOIN = 'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process id with its start time, so that no later process with the same id is taken for this one."""

    pid: int
    start_ticks: int  # when the process started, in clock ticks since boot

    @classmethod
    def of(cls, pid: int) -> "ProcessId":
        return cls(pid=pid, start_ticks=_state_and_start_ticks(pid)[1])

    def is_alive(self) -> bool:
        try:
            state, start_ticks = _state_and_start_ticks(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return start_ticks == self.start_ticks and state not in "ZX"  # a zombie holds nothing any more


def boot_id() -> str:
    """The kernel's id of this boot, different after every reboot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def namespace_file(pid: int, kind: str) -> str:
    """The file in /proc that stands for a namespace of a process."""
    return f"/proc/{pid}/ns/{kind}"


def joining(cgroup_dirs: Sequence[str], command: Sequence[str]) -> list[str]:
    """A command line that joins cgroups and then becomes `command`, under the same process id."""
    return ["/bin/sh", "-c", JOIN, "lab", *cgroup_dirs, "--", *command]


def entering(pid: int, command: Sequence[str], kinds: Sequence[str] = ENTERED) -> list[str]:
    """A command line that enters namespaces of `pid` and then becomes `command`, under the same process id."""
    handles = [f"--{_option(kind)}={namespace_file(pid, kind)}" for kind in kinds]
    return ["nsenter", *handles, "--", *command]


@contextmanager
def children_in_new_pid_namespace() -> Iterator[None]:
    """The next process that this thread starts is process 1 of a PID namespace of its own."""
    with _own_pid_namespace_restored():
        _checked(_libc.unshare(CLONE_NEWPID), "unshare")
        yield


@contextmanager
def children_in_pid_namespace_of(pid: int) -> Iterator[None]:
    """Processes that this thread starts live in the PID namespace of `pid`, and die with its process 1."""
    with _own_pid_namespace_restored():
        _set_pid_namespace(namespace_file(pid, "pid"))
        yield


def run_in_network_of(pid: int, command: Sequence[str], *, text_in: str = "") -> str:
    """Run a tool such as ip, tc or nft in a network namespace and return what it printed."""
    done = subprocess.run(
        entering(pid, command, ("net",)), input=text_in, capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode:
        problem = "; ".join(done.stderr.strip().splitlines())
        raise LabError(f"{command[0]} refuses: {problem}", fix=f"look for what it complains of in:\n{text_in}")
    return done.stdout


@contextmanager
def _own_pid_namespace_restored() -> Iterator[None]:
    # The setting belongs to the thread, so other threads that start processes meanwhile are not affected.
    try:
        yield
    finally:
        _set_pid_namespace("/proc/thread-self/ns/pid")


def _set_pid_namespace(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc.setns(handle, CLONE_NEWPID), "setns")
    finally:
        os.close(handle)


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _state_and_start_ticks(pid: int) -> tuple[str, int]:
    # The name in brackets may hold spaces, so count from the last bracket: state is field 3, the start field 22.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _option(kind: str) -> str:
    return {"mnt": "mount"}.get(kind, kind)
