"""Lab machines that meet: each with a home of its own, `potluck` commands on them, and what they left on disk."""

import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.support.lab_machines import ROOT
from lab import Lab, Process
from lab.cluster_file import load_cluster
from potluck.events.log import read_records
from potluck.events.types import Record, StepCommitted

POTLUCK = [sys.executable, "-m", "potluck"]
# Names that nobody resolves, and one's own name at 127.0.1.1: what a home network looks like.
MACHINES = ("rosa", "lily", "fern")
LAPTOPS = "machines:\n" + "".join(
    f"  - {{name: {name}, cores: 0.65, memory: 3G, link: 1gbit, resolves: false}}\n" for name in MACHINES
)
# All take part, whatever is fastest: with so small a model that would be one of them alone.
KEPT = [word for name in MACHINES for word in ("--keep", name)]
SMALL = ["--model-size", "tiny", "--num-samples", "640", *KEPT]


class Gathering:
    """A lab of three laptops; rosa is the host."""

    def __init__(self, folder: Path, cluster: str = LAPTOPS) -> None:
        self.folder = folder
        file = folder / "cluster.yaml"
        file.write_text(cluster)
        self.lab = Lab(load_cluster(file), name="meeting")
        self.line = ""
        self.pinned: Mapping[str, Sequence[str]] = {}

    def __enter__(self) -> "Gathering":
        self.lab.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.lab.__exit__(kind, error, traceback)

    def place(self, machine: str) -> Path:
        """The machine's own folder, which is its commands' working directory."""
        place = self.folder / machine
        place.mkdir(exist_ok=True)
        return place

    def variables(self, machine: str) -> dict[str, str]:
        """The environment of the machine's commands."""
        # pytest's own pythonpath does not reach other processes.
        path = f"{ROOT / 'src'}:{ROOT}"
        return {"POTLUCK_HOME": str(self.place(machine) / "home"), "PYTHONPATH": path, "COLUMNS": "200"}

    def start(
        self, machine: str, *arguments: object, env: Mapping[str, str] | None = None, under: Sequence[str] = ()
    ) -> Process:
        """Start `potluck ARGUMENTS` on the machine, by another program if `under` names one."""
        variables = {**self.variables(machine), **(env or {})}
        command = [*self.pinned.get(machine, ()), *under, *POTLUCK, *map(str, arguments)]
        return self.lab[machine].start(command, cwd=self.place(machine), env=variables)

    def run(
        self,
        machine: str,
        *arguments: object,
        timeout_s: float = 60,
        env: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
    ) -> tuple[int, str]:
        """The exit code and the output of `potluck ARGUMENTS` on the machine."""
        process = self.start(machine, *arguments, env=env, under=under)
        return process.wait(timeout_s), process.output

    def host(self, *options: object, env: Mapping[str, str] | None = None) -> Process:
        """Start `potluck host` on rosa; its invitation is in `line` from then on."""
        process = self.start("rosa", "host", *options, env=env)
        self.line = process.expect("potluck join p1-", 60).split()[2]
        return process

    def join(self, machine: str, *options: object, wait: bool = True) -> Process:
        """Start `potluck join` on the machine."""
        process = self.start(machine, "join", self.line, *options)
        if wait:
            process.expect("waiting for work", 60)
        return process

    def join_all(self, *machines: str) -> dict[str, Process]:
        """The agents of these machines: they join in this order, and get ready at the same time."""
        agents = {}
        for machine in machines:
            agents[machine] = self.join(machine, wait=False)
            agents[machine].expect(f" as {machine}", 60)
        for agent in agents.values():
            agent.expect("waiting for work", 60)
        return agents

    def status(self, machine: str = "rosa") -> dict[str, Any]:
        """What `potluck status --json` says there."""
        code, output = self.run(machine, "status", "--json")
        assert code == 0, output
        status: dict[str, Any] = json.loads(output)
        return status

    def states(self) -> dict[str, str]:
        """The state of every machine by its name, as the host sees it."""
        return {machine["machine"]: machine["state"] for machine in self.status()["machines"]}

    def ways(self) -> dict[str, str]:
        """How every two machines reach each other."""
        return {"-".join(sorted(link["machines"])): link["way"] for link in self.status()["links"]}

    def wait_for_copies(self, num_machines: int) -> None:
        """Until all machines have a vote, and the successors a copy of rosa's state."""

        def are_there() -> bool:
            succession = self.status()["succession"]
            copies = succession["copied"]
            return len(succession["voters"]) == num_machines and bool(copies) and all(copies.values())

        self.wait_until(are_there, "no successor has a copy", 90)

    def home_run(self, run: str) -> Path:
        """The run's folder on the host."""
        return self.place("rosa") / "experiments" / run

    def local_run(self, machine: str, run: str) -> Path:
        """The run's folder on the machine."""
        return self.home_run(run) if machine == "rosa" else self.place(machine) / "home" / "runs" / run

    def steps(self, run: str, machine: str | None = None) -> list[Record]:
        """Committed steps in the host's files, all or one machine's, in the order of their times."""
        return [
            record
            for file in self.home_run(run).glob(f"events/{machine or '*'}-*.jsonl")
            for record in read_records(file)
            if isinstance(record.event, StepCommitted)
        ]

    def wait_for_step(self, run: str, step: int, machine: str | None = None, timeout_s: float = 60) -> None:
        """Until the host's files have that step, of any machine or of this one."""
        self.wait_until(lambda: self.last_step(run, machine) >= step, f"no step {step}", timeout_s)

    def last_step(self, run: str, machine: str | None = None) -> int:
        """The newest step in the host's files; 0 before the first."""
        events = (record.event for record in self.steps(run, machine))
        return max((event.step for event in events if isinstance(event, StepCommitted)), default=0)

    def wait_until(self, condition: Callable[[], bool], complaint: str, timeout_s: float = 60) -> None:
        """Until the condition holds; fails with the complaint."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, complaint
            time.sleep(0.1)

    def printed(self, process: Process) -> str:
        """What it has printed so far, without secrets."""
        return re.sub(r"p1-\S+", "p1-...", process.output)
