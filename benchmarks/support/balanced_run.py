"""One run of `benchmarks.support.balance_worker` on all machines of a lab, from a cold start."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.crew import LabCrew
from benchmarks.support.lab_machines import READY_S, wait_for_all
from lab import Lab


@dataclass(frozen=True)
class Order:
    """What every worker is told."""

    policy: str
    batch: int
    steps: int


def train(lab: Lab, folder: Path, order: Order, meanwhile: Callable[[LabCrew], None] = lambda _: None) -> LabCrew:
    """Train at the declared cores; `meanwhile` is called once all are under way. The crew's workers have ended."""
    go = folder / "go"
    arguments = ["--steps", order.steps, "--batch", order.batch, "--go", go, "--load-balance-policy", order.policy]
    crew = LabCrew(lab, folder, arguments, expected=len(lab.machines), module="benchmarks.support.balance_worker")
    try:
        for name in crew.machines.names:
            crew.start(name, POTLUCK_HOME=str(folder / "home"))
        crew.machines.let_go(crew.workers.values(), go)
        meanwhile(crew)
        wait_for_all(crew.workers.values(), READY_S + 5.0 * order.steps)
    finally:
        crew.close()
    return crew
