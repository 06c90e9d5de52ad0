"""Workers on lab machines that share a lighthouse, without a host."""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.support.lab_gates import LabGates
from benchmarks.support.lab_machines import ROOT, LabMachines
from lab import Lab, Process
from potluck.events.log import read_records
from potluck.events.types import Record, StepCommitted

PORT = 29510
SECRET = "a secret of the benchmark"
LIGHTHOUSE = [sys.executable, str(Path(__file__).with_name("lighthouse.py"))]
WORKER = "benchmarks.support.worker"


def worker_variables(host_address: str, runs_dir: Path, expected: int) -> dict[str, str]:
    """What a worker on a lab machine is told: where the others meet, how many they are, where its runs go."""
    return {
        "POTLUCK_LIGHTHOUSE": f"http://{host_address}:{PORT}",
        "POTLUCK_SECRET": SECRET,
        "POTLUCK_RUNS_DIR": str(runs_dir),
        "POTLUCK_WORKERS": str(expected),
    }


class LabCrew:
    """One worker a machine, a lighthouse on the first; through gates, as with a host, or directly, as without one."""

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        arguments: Iterable[object],
        *,
        expected: int,
        module: str = WORKER,
        is_direct: bool = False,
    ) -> None:
        self.lab = lab
        self.machines = LabMachines(lab)
        self.folder = folder
        self.workers: dict[str, Process] = {}
        self._arguments = list(map(str, arguments))
        self._expected = expected
        self._command = [sys.executable, "-m", module]
        self._host = lab.machines[0]
        self._host_address = self._host.address
        self._gates: LabGates | None = None
        if not is_direct:
            self._gates = LabGates(lab, folder, lighthouse_port=PORT, pinned=self.machines.pinned)
            self._host_address = self._gates.address(self._host.name)
            self._gates.start(*self.machines.names)
        self.start_lighthouse()

    def start_lighthouse(self) -> None:
        """On the first machine, also after it was killed."""
        self.lighthouse = self._host.start([*LIGHTHOUSE, "--bind", f"{self._host_address}:{PORT}"])

    def stop_lighthouse(self) -> None:
        """Kill it: no step ends from now on."""
        self.lighthouse.kill()
        self.lighthouse.wait(10)

    def close(self) -> None:
        """End what serves the workers, once these have ended."""
        self.stop_lighthouse()
        if self._gates is not None:
            self._gates.stop()

    def start(self, name: str, **variables: str) -> Process:
        """Start the machine's worker, or start it again."""
        if self._gates is not None and not self._gates.is_open(name):  # it was killed with its machine
            self._gates.start(name)
        self.workers[name] = self.machines.start(
            name,
            [*self._command, "--worker", str(self.result(name)), *self._arguments],
            {
                **worker_variables(self._host_address, self.folder / name, self._expected),
                **({} if self._gates is None else self._gates.variables(name)),
                "POTLUCK_HOME": str(self.folder / name),
                **variables,
            },
        )
        return self.workers[name]

    def result(self, name: str) -> Path:
        """Where the machine's worker leaves what it has to show at the end."""
        return self.folder / f"{name}.pt"

    def event_files(self, name: str) -> list[Path]:
        """Of the machine's worker, one for each time that it was started."""
        return sorted((self.folder / name / "run" / "events").glob("*.jsonl"))

    def records(self, name: str) -> list[Record]:
        """What the machine's worker committed so far."""
        return [r for file in self.event_files(name) for r in read_records(file) if isinstance(r.event, StepCommitted)]

    def steps(self, name: str) -> list[StepCommitted]:
        """The steps that the machine's worker committed so far."""
        return [record.event for record in self.records(name) if isinstance(record.event, StepCommitted)]


def gather(crew: LabCrew, into: Path) -> None:
    """One run folder with the event files that all machines write, as the host of a run holds it."""
    (into / "events").mkdir(parents=True)
    for name in crew.workers:
        shutil.copy(crew.folder / name / "run" / "run.yaml", into)
        for file in crew.event_files(name):
            (into / "events" / file.name).symlink_to(file)


def start_alone(runs_dir: Path, result: Path, steps: int) -> subprocess.Popen[bytes]:
    """One process on this computer that makes the same steps as a crew of `benchmarks.support.worker`."""
    return subprocess.Popen(
        [sys.executable, "-m", WORKER, "--worker", str(result), "--steps", str(steps), "--pause", "0"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": "", "OMP_NUM_THREADS": "1", "POTLUCK_RUNS_DIR": str(runs_dir)},
    )


def longest_gap_s(records: list[Record], start_s: float, end_s: float) -> float:
    """The longest time without a committed step that ends in the window (clock of time.time)."""
    times = [record.time for record in records]
    gaps = [later - earlier for earlier, later in pairwise(times) if start_s <= later <= end_s]
    return max(gaps, default=float("inf"))


def read_parameters(result: Path) -> list[Tensor]:
    """What `benchmarks.support.worker` has left at its end."""
    parameters: list[Tensor] = torch.load(result, weights_only=True)
    return parameters


def largest_difference(first: Iterable[Tensor], second: Iterable[Tensor]) -> float:
    """Between two sets of parameters."""
    return max(float((mine - theirs).abs().max()) for mine, theirs in zip(first, second, strict=True))
