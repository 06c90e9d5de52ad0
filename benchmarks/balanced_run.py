"""One run of `benchmarks.balance_worker` on all machines of a lab, from a cold start."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.crew import READY_S, LabCrew, let_go
from lab import Lab, LabError


@dataclass(frozen=True)
class Order:
    """What every worker is told."""

    policy: str
    batch: int
    steps: int


def train(
    lab: Lab,
    declared: dict[str, float],
    folder: Path,
    order: Order,
    meanwhile: Callable[[LabCrew], None] = lambda _: None,
) -> LabCrew:
    """Train at the declared cores; `meanwhile` is called once all are under way. The crew's workers have ended."""
    go = folder / "go"
    arguments = ["--steps", str(order.steps), "--batch", str(order.batch), "--go", str(go)]
    arguments += ["--load-balance-policy", order.policy]
    crew = LabCrew(lab, folder, arguments, expected=len(declared), module="benchmarks.balance_worker")
    try:
        for name in declared:
            crew.start(name, POTLUCK_HOME=str(folder / "home"))
        let_go(lab, declared, crew.workers, go)
        meanwhile(crew)
        for name, worker in crew.workers.items():
            if worker.wait(READY_S + 5.0 * order.steps):
                raise LabError(f"the worker on {name} failed:\n{worker.output}", fix="see its traceback")
    finally:
        crew.lighthouse.kill()
        crew.lighthouse.wait(10)
    return crew


def event_files(crew: LabCrew) -> list[Path]:
    """One a worker, in the order of the machines."""
    return [next((crew.folder / name / "run" / "events").glob("*.jsonl")) for name in crew.workers]
