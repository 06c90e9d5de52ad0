"""A real systemd user manager beside the computer's own: in a mount namespace and a cgroup of its own."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

SYSTEMD = Path("/lib/systemd/systemd")
# systemd refuses to manage a user where /run says that the computer was not booted with systemd. At its start it moves
# every process of its own cgroup: it must have a cgroup of its own in every hierarchy, or it would move them all.
BEGIN = """
systemd=$1 name=$2; shift 2
for folder in "$@"; do echo $$ > "$folder/cgroup.procs" || exit 9; done
grep -E '^0::|:name=systemd:' /proc/self/cgroup | grep -qv ":/$name$" && exit 9
mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && mkdir /run/systemd/system || exit 9
exec "$systemd" --user --log-target=console
"""


def missing() -> str:
    """Why no manager can be started here; empty if one can."""
    if os.geteuid() != 0 or not SYSTEMD.exists() or not shutil.which("unshare") or not shutil.which("systemctl"):
        return "needs root, systemd and unshare"
    return ""


class UserManager:
    """`systemd --user` with a home of its own; `reboot` ends it with all its services and starts it anew."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._runtime = Path(tempfile.mkdtemp(prefix="potluck-", dir="/tmp"))  # a socket's path must be short
        tree = Path("/sys/fs/cgroup")
        hierarchies = (
            [tree] if (tree / "cgroup.procs").exists() else [one.parent for one in tree.glob("*/cgroup.procs")]
        )
        self._cgroups = [one / self._runtime.name for one in hierarchies]
        self.variables = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(self._runtime),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "COLUMNS": "200",
        }

    def __enter__(self) -> "UserManager":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for cgroup in self._cgroups:
            for folder in sorted(cgroup.rglob("*/"), key=lambda one: -len(one.parts)):
                folder.rmdir()
            if cgroup.is_dir():
                cgroup.rmdir()
        shutil.rmtree(self._runtime, ignore_errors=True)

    def start(self) -> None:
        for cgroup in self._cgroups:
            cgroup.mkdir(exist_ok=True)
            if cgroup.parent.name == "cpuset":  # a new cgroup of version 1 has no processor until it is given one
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (cgroup / file).write_text((cgroup.parent / file).read_text())
        own = [SYSTEMD, self._runtime.name, *self._cgroups]
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", BEGIN, "sh", *own]
        with (self.home / "manager.log").open("a") as log:
            self._process = subprocess.Popen(command, env=self.variables, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while self.run("systemctl", "--user", "show-environment")[0] != 0:
            assert self._process.poll() is None, (self.home / "manager.log").read_text()
            assert time.monotonic() < deadline, "the manager does not answer"
            time.sleep(0.1)

    def end(self) -> None:
        """As at a shutdown: all services are stopped, then the manager ends."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def reboot(self) -> None:
        self.end()
        shutil.rmtree(self._runtime)
        self._runtime.mkdir(mode=0o700)
        self.start()

    def run(self, *command: object, timeout_s: float = 120) -> tuple[int, str]:
        """The exit code and the output of a command of this user."""
        done = subprocess.run(
            list(map(str, command)), env=self.variables, cwd=self.home, text=True, timeout=timeout_s,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def has_own_cgroup(self) -> bool:
        """Whether all that this manager holds is in the cgroup that was made for it."""
        lines = Path(f"/proc/{self._process.pid}/cgroup").read_text().splitlines()
        return all(f"/{self._runtime.name}" in line for line in lines)

    def main_pid(self, unit: str) -> int:
        """The unit's main process; 0 if it has none now."""
        return int(self.run("systemctl", "--user", "show", "--property", "MainPID", "--value", unit)[1] or 0)
