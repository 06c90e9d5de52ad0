"""Process 1 of a machine: makes its namespaces, then does nothing but hold them until its standard input closes.

The lab keeps the other end of that pipe. When the lab ends, however it ends, the kernel closes the pipe, this process
ends, and the kernel removes every process, mount and link of the machine with it. The lab runs this file with
`python -I -S`, so it imports nothing but the standard library.

One line of JSON comes in: {"hostname": ..., "files": {path: text}, "shm_bytes": n, "disks": {path: bytes}}.
One line goes out: "ready", or what went wrong.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET = 0x20000, 0x4000000, 0x8000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x1000, 0x4000, 0x40000, 2
SHM = "/dev/shm"  # noqa: S108 (the machine's own, mounted below)

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Make the machine's namespaces, and hold them until stdin closes."""
    # Orphans of the machine's programs become children of this process; with SIG_IGN the kernel reaps them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        settle(json.loads(sys.stdin.readline()))
    except (OSError, ValueError) as error:
        print(f"error: {error}", flush=True)
        return
    print("ready", flush=True)
    while os.read(0, 4096):
        pass


def settle(machine: dict[str, object]) -> None:
    """Make the namespaces, and in them the machine's own /proc, /sys, /etc, /dev/shm, disks and hostname."""
    _checked(_libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET), "unshare")
    _mount("", "/", "", MS_REC | MS_PRIVATE)  # the mounts below are not seen outside
    _mount("proc", "/proc", "proc")
    # A fresh /sys shows this namespace's interfaces; cgroups stay readable there, as in a container.
    cgroups = os.open("/sys/fs/cgroup", os.O_PATH)
    _mount("sysfs", "/sys", "sysfs")
    _mount(f"/proc/self/fd/{cgroups}", "/sys/fs/cgroup", "", MS_BIND | MS_REC)
    os.close(cgroups)
    own_etc(dict(machine["files"]))  # type: ignore[call-overload]
    _mount("tmpfs", SHM, "tmpfs", data=f"size={machine['shm_bytes']},mode=1777")
    for path, size_bytes in dict(machine["disks"]).items():  # type: ignore[call-overload]
        _mount("tmpfs", path, "tmpfs", data=f"size={size_bytes}")
    socket.sethostname(str(machine["hostname"]))


def own_etc(files: dict[str, str]) -> None:
    """Lay a private, writable layer over /etc, so that editing the machine's hosts file is safe and looks real."""
    _mount("tmpfs", SHM, "tmpfs")
    for name in ("upper", "work"):
        Path(SHM, name).mkdir()
    _mount("overlay", "/etc", "overlay", data=f"lowerdir=/etc,upperdir={SHM}/upper,workdir={SHM}/work")
    _checked(_libc.umount2(SHM.encode(), MNT_DETACH), "umount /dev/shm")
    for path, text in files.items():
        # The path is often a symlink into /run: writing through it would change the real computer's file.
        Path(path).unlink(missing_ok=True)
        Path(path).write_text(text)


def _mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    result = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _checked(result, f"mount {kind or 'bind'} on {target}")


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
