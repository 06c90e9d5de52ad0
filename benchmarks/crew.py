"""Workers on lab machines that share a lighthouse, for benchmarks of faults and of balance."""

import shutil
import sys
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks.ddp_baseline import READY
from benchmarks.lab_gates import LabGates
from benchmarks.pinning import pin
from lab import Lab, Process
from potluck.events.log import read_records
from potluck.events.types import Record, StepCommitted

ROOT = Path(__file__).parents[1]
PORT = 29510
SECRET = "a secret of the benchmark"
READY_S = 120.0
LIGHTHOUSE = [
    str(Path(sys.executable).with_name("torchft_lighthouse")),
    *("--min_replicas", "1", "--quorum_tick_ms", "20", "--join_timeout_ms", "15000", "--heartbeat_timeout_ms", "1000"),
]
START_CORES = 1.0  # importing torch is not what is measured: machines get their declared cores when training runs


def worker_variables(host_address: str, runs_dir: Path, expected: int) -> dict[str, str]:
    """What a worker on a lab machine is told: where the others meet, how many they are, where its runs go."""
    return {
        "POTLUCK_LIGHTHOUSE": f"http://{host_address}:{PORT}",
        "POTLUCK_SECRET": SECRET,
        "POTLUCK_RUNS_DIR": str(runs_dir),
        "POTLUCK_WORKERS": str(expected),
        "OMP_NUM_THREADS": "1",
    }


class LabCrew:
    """One worker a machine, a lighthouse on the first; through gates, as with a host, or directly, as without one."""

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        arguments: list[str],
        *,
        expected: int,
        module: str = "benchmarks.worker",
        is_direct: bool = False,
    ) -> None:
        self.lab = lab
        self.folder = folder
        self.workers: dict[str, Process] = {}
        self._arguments = arguments
        self._expected = expected
        self._command = [sys.executable, "-m", module]
        self._host = lab.machines[0]
        self._host_address = self._host.address
        self._declared = {machine.name: machine.cores() for machine in lab.machines}
        self._pinned = pin(lab.machines)
        self._gates: LabGates | None = None
        if not is_direct:
            self._gates = LabGates(lab, folder, lighthouse_port=PORT, pinned=self._pinned)
            self._host_address = self._gates.address(self._host.name)
            self._gates.start(*self._declared)
        self.start_lighthouse()

    def start_lighthouse(self) -> None:
        """On the first machine, also after it was killed."""
        self.lighthouse = self._host.start([*LIGHTHOUSE, "--bind", f"{self._host_address}:{PORT}"])

    def start(self, name: str, **variables: str) -> Process:
        """Start the machine's worker, or start it again."""
        machine = self.lab[name]
        machine.slow(START_CORES)
        if self._gates is not None and not self._gates.is_open(name):  # it was killed with its machine
            self._gates.start(name)
        self.workers[name] = machine.start(
            [*self._pinned[name], *self._command, "--worker", str(self.result(name)), *self._arguments],
            cwd=ROOT,
            env={
                **worker_variables(self._host_address, self.folder / name, self._expected),
                **({} if self._gates is None else self._gates.variables(name)),
                "POTLUCK_HOME": str(self.folder / name),
                **variables,
            },
        )
        return self.workers[name]

    def settle(self, name: str) -> None:
        """Give the machine the cores that its cluster file declares."""
        self.lab[name].slow(self._declared[name])

    def result(self, name: str) -> Path:
        """Where the machine's worker leaves what it has to show at the end."""
        return self.folder / f"{name}.pt"

    def records(self, name: str) -> list[Record]:
        """What the machine's worker committed so far."""
        files = (self.folder / name / "run" / "events").glob("*.jsonl")
        return [r for file in sorted(files) for r in read_records(file) if isinstance(r.event, StepCommitted)]


def gather(crew: LabCrew, run: str, into: Path) -> None:
    """One run folder with the event files that all machines write, as the host of a run holds it."""
    (into / "events").mkdir(parents=True)
    for name in crew.workers:
        mine = crew.folder / name / run
        shutil.copy(mine / "run.yaml", into)
        for file in (mine / "events").glob("*.jsonl"):
            (into / "events" / file.name).symlink_to(file)


def let_go(lab: Lab, declared: dict[str, float], workers: dict[str, Process], go: Path) -> None:
    """Once all workers are ready, give machines the cores they are declared, and start: imports are not measured."""
    for worker in workers.values():
        worker.expect(READY, READY_S)
    for name, cores in declared.items():
        lab[name].slow(cores)
    go.touch()


def longest_gap_s(records: list[Record], start_s: float, end_s: float) -> float:
    """The longest time without a committed step that ends in the window (clock of time.time)."""
    times = [record.time for record in records]
    gaps = [later - earlier for earlier, later in pairwise(times) if start_s <= later <= end_s]
    return max(gaps, default=float("inf"))


def lost_steps(everybody: list[list[Record]], last_step: int) -> int:
    """How many steps up to the last nobody committed. A machine that was away misses some that the others have."""
    steps = {
        record.event.step for records in everybody for record in records if isinstance(record.event, StepCommitted)
    }
    return len(set(range(1, last_step + 1)) - steps)


def largest_difference(first: Path, second: Path) -> float:
    """Between two saved sets of parameters."""
    pairs = zip(torch.load(first, weights_only=True), torch.load(second, weights_only=True), strict=True)
    return max((mine - theirs).abs().max().item() for mine, theirs in pairs)
