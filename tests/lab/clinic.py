"""Two lab machines that fall ill, the doctor, and a training run that shows whether the fix works."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import Lab, Process
from lab.cluster import FirewallRule
from lab.cluster_file import parse_cluster

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = sys.executable
POTLUCK = str(Path(PYTHON).with_name("potluck"))
OAK, ELM = "oak", "elm"
ADDRESSES = {OAK: "10.77.0.1", ELM: "10.77.0.2"}
ETH0 = {"GLOO_SOCKET_IFNAME": "eth0"}
WORKS_S = 30.0  # a run that works takes two seconds
LISTEN_PORT, MEETING_PORT, HOST_PORT = "29498", "29500", "29600"

CLUSTER = """
machines:
  - name: oak
    cores: 0.95
    memory: 2G
    link: 1gbit
    interfaces: [{{name: docker0, kind: bridge, address: 172.17.0.1/16}}]
  - name: elm
    cores: 0.95
    memory: 2G
    link: 1gbit
    resolves: false
    shm: 1M
    disks: [{{path: {disk}, size: 1M}}]
    interfaces: [{{name: docker0, kind: bridge, address: 172.17.0.1/16}}]
"""


@dataclass(frozen=True)
class Ended:
    """A training run's end."""

    worked: bool
    output: str


class Clinic:
    """The machines, a doctor that listens on each, and workers that start without waiting for torch."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        warm = [self._start(name, "serve") for name in ADDRESSES]
        listeners = {name: self._listen(name) for name in ADDRESSES}
        self._listeners = {name: self._place(process) for name, process in listeners.items()}
        self._hosts = {name: lab[name].run(["cat", "/etc/hosts"]).output for name in ADDRESSES}
        for process in warm:
            process.expect("warm", timeout_s=60)
        start = time.monotonic()
        ended = self.train()
        assert ended.worked, f"the machines do not train although nothing is wrong: {ended.output}"
        # What takes twice as long as a healthy run does not work.
        self._fails_s = max(1.5, 2 * (time.monotonic() - start))

    @contextmanager
    def listening(self, name: str, *, python: str = PYTHON, **variables: str) -> Iterator[str]:
        """Another `potluck doctor --listen` on a machine, with these variables; gives what to type on others."""
        process = self._listen(name, "--port", "0", python=python, **variables)
        try:
            yield self._place(process)
        finally:
            process.kill()
            process.wait(10)

    def _listen(self, name: str, *more: str, python: str = PYTHON, **variables: str) -> Process:
        command = [python, "-m", "potluck", "doctor", "--listen", *(more or ("--port", LISTEN_PORT))]
        return self.lab[name].start(command, cwd=self.folder, env=variables)

    def _place(self, listener: Process) -> str:
        return listener.expect("--reach", timeout_s=30).partition("--reach ")[2]

    @contextmanager
    def hosting(self) -> Iterator[str]:
        """`potluck host` on oak; gives the line to paste on others."""
        host = self.start(OAK, "host", "--port", HOST_PORT, "--no-mdns", variables=self.home(OAK))
        try:
            yield host.expect("potluck join p1-", timeout_s=30).split()[2]
        finally:
            host.kill()
            host.wait(10)

    def join(self, line: str) -> Process:
        """`potluck join` on elm."""
        return self.start(ELM, "join", line, variables=self.home(ELM))

    def home(self, name: str) -> dict[str, str]:
        """Variables that give a machine a ~/.potluck of its own; all machines of a lab share the box's files."""
        return {"POTLUCK_HOME": str(self.folder / f"{name}-home")}

    def start(self, name: str, *arguments: str, variables: Mapping[str, str] | None = None) -> Process:
        """A `potluck` command that need not wait for its imports."""
        command = self._warm_command(name, [str(HERE / "potluck_worker.py"), *arguments])
        return self.lab[name].start(command, cwd=self.folder, env=variables)

    def train(self, *, patience_s: float = WORKS_S, **options: Any) -> Ended:
        """Train on the machines, in shells in which the fixes were typed before. Ends when all or one has."""
        with self._training(**options) as workers:
            return self._see_the_end(workers, time.monotonic() + patience_s)

    @contextmanager
    def failing(self, **options: Any) -> Iterator[None]:
        """Training that ends with an error, or gets nowhere in the time in which it otherwise would; meanwhile ask."""
        deadline = time.monotonic() + self._fails_s
        with self._training(**options) as workers:
            yield
            ended = self._see_the_end(workers, deadline)
        assert not ended.worked, f"training works although something is wrong: {ended.output}"

    @contextmanager
    def _training(
        self,
        *,
        oak: Mapping[str, str] | None = None,
        elm: Mapping[str, str] | None = None,
        fixes: Sequence[Mapping[str, Any]] = (),
        command: Sequence[str] = (str(HERE / "ddp_worker.py"),),
        machines: Sequence[str] = (OAK, ELM),
    ) -> Iterator[list[Process]]:
        wanted = {OAK: oak or ETH0, ELM: elm or ETH0}
        workers = [self._train_on(name, rank, wanted[name], fixes, command) for rank, name in enumerate(machines)]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.kill()
                worker.wait(10)

    def _see_the_end(self, workers: list[Process], deadline: float) -> Ended:
        while time.monotonic() < deadline and not any(worker.returncode for worker in workers):
            if all(worker.returncode == 0 for worker in workers):
                break
            time.sleep(0.02)
        worked = all(worker.returncode == 0 for worker in workers)
        return Ended(worked=worked, output="\n".join(f"[{worker.returncode}] {worker.output}" for worker in workers))

    def diagnose(
        self, check: str, *, on: str, reach: Sequence[str] = (), variables: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """What one check of `potluck doctor` finds wrong; `reach` names machines or what a listener printed."""
        places = [one for name in reach for one in ("--reach", self._listeners.get(name, name))]
        done = self.start(on, "doctor", "--json", "--check", check, *places, variables=variables)
        done.wait(60)
        document = done.output[done.output.index("{") :]
        return [one for one in json.loads(document)["findings"] if one["status"] in ("warn", "fail")]

    def guard(self, name: str, action: str) -> None:
        """A firewall that lets nobody in."""
        wall = FirewallRule(action=action, protocol="tcp", ports="1024-65535")  # type: ignore[arg-type]
        self.lab[name].set_firewall([wall])

    def heal(self) -> None:
        """Make both machines as they were."""
        for name in ADDRESSES:
            machine = self.lab[name]
            machine.mend()
            machine.set_firewall([])
            machine.limit_packets(1500)
            machine.limit_rate(10**9)
            restore = 'hostname "$1"; ip link set dev eth0 mtu 1500; printf "%s\\n" "$2" > /etc/hosts'
            machine.run(["bash", "-c", restore, "shell", name, self._hosts[name]])

    def _start(self, name: str, *arguments: str) -> Process:
        return self.lab[name].start([PYTHON, str(HERE / "warm.py"), *arguments, str(self.folder / name)], cwd=ROOT)

    def _warm_command(self, name: str, command: Sequence[str]) -> list[str]:
        return [PYTHON, "-S", str(HERE / "warm.py"), "run", str(self.folder / name), *command]

    def _train_on(
        self,
        name: str,
        rank: int,
        variables: Mapping[str, str],
        fixes: Sequence[Mapping[str, Any]],
        command: Sequence[str],
    ) -> Process:
        typed = [line for fix in fixes if fix["machine"].startswith(name) for line in fix["commands"]]
        start = self._warm_command(name, command)
        launch = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": ADDRESSES[OAK],
            "MASTER_PORT": MEETING_PORT,
            "POTLUCK_RUNS_DIR": str(self.folder / f"{name}-runs"),
        }
        lines = ["set -e", *typed, 'exec "$@"']
        return self.lab[name].start(
            ["bash", "-c", "\n".join(lines), "shell", *start], cwd=self.folder, env={**launch, **variables}
        )


def make_lab(folder: Path) -> Lab:
    """The cluster of the clinic."""
    disk = folder / "disk"
    disk.mkdir()
    return Lab(parse_cluster(CLUSTER.format(disk=disk), source="clinic", name="clinic"), name="clinic")
