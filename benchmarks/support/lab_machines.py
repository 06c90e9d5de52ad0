"""A lab's machines with programs that import torch on a whole core each, and then work at the machine's declared cores.

Importing torch on a fifth of a core takes a minute, and is not what is measured.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.support.pinning import pin
from lab import Lab, LabError, Process

ROOT = Path(__file__).parents[2]
START_CORES = 1.0
READY = "ready"
READY_S = 120.0


class LabMachines:
    """All machines of a lab that is up, each on one processor where they fit."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.cores = {machine.name: machine.cores() for machine in lab.machines}
        self.names = list(self.cores)
        self.pinned = pin(lab.machines)

    def start(self, name: str, command: Sequence[str], variables: Mapping[str, str] | None = None) -> Process:
        """Start a program on the machine, which has a whole core from now on."""
        self.lab[name].slow(START_CORES)
        variables = {"OMP_NUM_THREADS": "1", **(variables or {})}
        return self.lab[name].start([*self.pinned[name], *command], cwd=ROOT, env=variables)

    def settle(self, *names: str) -> None:
        """Give these machines, or all, the cores that their cluster file declares."""
        for name in names or self.names:
            self.lab[name].slow(self.cores[name])

    def let_go(self, workers: Iterable[Process], go: Path) -> None:
        """Once all workers wait in `wait_for_go`, give the machines their declared cores, and let the workers start."""
        for worker in workers:
            worker.expect(READY, READY_S)
        self.settle()
        go.touch()


def wait_for_go(file: Path) -> None:
    """In a worker: say that everything is imported and set up, and wait until the file appears."""
    print(READY, flush=True)
    while not file.exists():
        time.sleep(0.05)


def wait_for_all(workers: Iterable[Process], timeout_s: float) -> None:
    """Until every worker has ended; raises with the output of one that failed."""
    for worker in workers:
        if worker.wait(timeout_s):
            raise LabError(f"the worker on {worker.machine} failed:\n{worker.output}", fix="see its traceback")
