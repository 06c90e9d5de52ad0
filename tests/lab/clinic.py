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
LISTEN_PORT, MEETING_PORT = "29498", "29500"

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
        self._warm = {name: self._start(name, "serve") for name in ADDRESSES}
        self._listeners = {name: self._listen(name)[1] for name in ADDRESSES}
        for process in self._warm.values():
            process.expect("warm", timeout_s=60)
        start = time.monotonic()
        ended = self.train()
        assert ended.worked, f"the machines do not train although nothing is wrong: {ended.output}"
        # What takes twice as long as a healthy run does not work.
        self._fails_s = max(2.5, 2 * (time.monotonic() - start))

    @contextmanager
    def listening(self, name: str, **variables: str) -> Iterator[str]:
        """Another `potluck doctor --listen` on a machine, with these variables; gives what to type on others."""
        process, place = self._listen(name, "--port", "0", **variables)
        try:
            yield place
        finally:
            process.kill()
            process.wait(10)

    def _listen(self, name: str, *more: str, **variables: str) -> tuple[Process, str]:
        process = self.lab[name].start([POTLUCK, "doctor", "--listen", *more], cwd=ROOT, env=variables)
        return process, process.expect("--reach", timeout_s=30).partition("--reach ")[2]

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
        return Ended(worked=worked, output="\n".join(worker.output for worker in workers))

    def diagnose(
        self, check: str, *, on: str, reach: Sequence[str] = (), variables: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """What one check of `potluck doctor` finds wrong; `reach` names machines or what a listener printed."""
        places = [one for name in reach for one in ("--reach", self._listeners.get(name, name))]
        done = self.lab[on].run(
            [POTLUCK, "doctor", "--json", "--check", check, *places], cwd=self.folder, env=variables, timeout_s=60
        )
        document = done.output[done.output.index("{") :]
        return [one for one in json.loads(document)["findings"] if one["status"] in ("warn", "fail")]

    def guard(self, name: str, action: str, *, direction: str = "in") -> None:
        """A firewall that lets the doctor and the meeting point through, and refuses all other high ports."""
        passes = [
            FirewallRule(action="accept", protocol="tcp", ports=port, direction=direction)  # type: ignore[arg-type]
            for port in (LISTEN_PORT, MEETING_PORT)
        ]
        wall = FirewallRule(action=action, protocol="tcp", ports="1024-65535", direction=direction)  # type: ignore[arg-type]
        self.lab[name].set_firewall([*passes, wall])

    def heal(self) -> None:
        """Make both machines as they were."""
        for name in ADDRESSES:
            machine = self.lab[name]
            machine.mend()
            machine.set_firewall([])
            machine.limit_packets(1500)
            machine.limit_rate(10**9)
            machine.run(["bash", "-c", f"hostname {name}; ip link set dev eth0 mtu 1500"])

    def _start(self, name: str, *arguments: str) -> Process:
        return self.lab[name].start([PYTHON, str(HERE / "warm.py"), *arguments, str(self.folder / name)], cwd=ROOT)

    def _train_on(
        self,
        name: str,
        rank: int,
        variables: Mapping[str, str],
        fixes: Sequence[Mapping[str, Any]],
        command: Sequence[str],
    ) -> Process:
        typed = [line for fix in fixes if fix["machine"].startswith(name) for line in fix["commands"]]
        start = [PYTHON, "-S", str(HERE / "warm.py"), "run", str(self.folder / name), *command]
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
