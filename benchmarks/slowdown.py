"""A machine slows down in the middle of a run, and is freed again: how many steps until the plan fits, in the lab.

    python -m benchmarks.slowdown --cluster laptops --json

The first machine, the fastest, gets a third of its cores after a third of the steps, and all of them after two thirds.
The best step of a phase is the shortest median of ten steps in a row in it. The plan fits from the first step on after
which five steps in a row have a median within 7 % of that.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.crew import READY_S, LabCrew, let_go
from lab import Lab, LabError
from potluck.events.log import read_records
from potluck.events.types import PlanChanged, StepCommitted

WITHIN, WINDOW, BEST_OF = 1.07, 5, 10
BAR = 20
SLOWER = 3.0


def main() -> None:
    """Measure, print, and with --json end with one line for scripts; exit 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="laptops", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=384, help="global batch")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    try:
        steps_s, changes, edges = run(options.cluster, options.steps, options.batch)
    except LabError as error:
        sys.exit(f"error: {error}")
    figures: dict[str, object] = {"benchmark": "slowdown", "cluster": options.cluster, "global_batch": options.batch}
    missed = False
    for name, (start, end) in zip(("usual", "slowed", "freed"), pairwise([0, *edges, len(steps_s)]), strict=True):
        phase = steps_s[start:end]
        best_s = best_of(phase)
        until = steps_until(phase, best_s)
        before_s = statistics.median(phase[:3])
        num_changes = sum(start < step <= end for step in changes)
        figures[name] = {"best_step_s": best_s, "steps_until_it_fits": until, "plan_changes": num_changes}
        missed |= name != "usual" and until > BAR
        print(
            f"{name:>8}: steps begin at {before_s * 1e3:.0f} ms, the best are {best_s * 1e3:.0f} ms; "
            f"within 7 % of them after {until} steps; {num_changes} plan changes in {len(phase)} steps"
        )
    if options.json:
        print(json.dumps(figures))
    sys.exit(missed)


def run(cluster: str, steps: int, batch: int) -> tuple[list[float], list[int], list[int]]:
    """Seconds of every step, the steps at which the plan changed, and those at which the machine did."""
    with tempfile.TemporaryDirectory() as scratch, Lab(cluster) as lab:
        folder = Path(scratch)
        declared = {machine.name: machine.cores() for machine in lab.machines}
        go = folder / "go"
        arguments = ["--steps", str(steps), "--batch", str(batch), "--go", str(go), "--load-balance-policy", "dynamic"]
        crew = LabCrew(lab, folder, arguments, expected=len(declared), module="benchmarks.balance_worker")
        try:
            for name in declared:
                crew.start(name)
            let_go(lab, declared, crew.workers, go)
            first = lab.machines[0]
            edges = []
            for number, cores in ((1, declared[first.name] / SLOWER), (2, declared[first.name])):
                wait_for_step(crew, first.name, number * steps // 3)
                first.slow(cores)
                edges.append(len(crew.records(first.name)))
            for name, worker in crew.workers.items():
                if worker.wait(READY_S + 5.0 * steps):
                    raise LabError(f"the worker on {name} failed:\n{worker.output}", fix="see its traceback")
        finally:
            crew.lighthouse.kill()
            crew.lighthouse.wait(10)
        events = next((folder / first.name / "run" / "events").glob("*.jsonl"))
        records = [record.event for record in read_records(events)]
    return (
        [event.seconds for event in records if isinstance(event, StepCommitted)],
        [event.step for event in records if isinstance(event, PlanChanged)][1:],
        edges,
    )


def wait_for_step(crew: LabCrew, name: str, step: int) -> None:
    """Until the machine's worker has committed so many steps."""
    until = time.monotonic() + READY_S + 5.0 * step
    while len(crew.records(name)) < step:
        if time.monotonic() > until or crew.workers[name].returncode is not None:
            raise LabError(f"step {step} was never reached:\n{crew.workers[name].output}", fix="see its output")
        time.sleep(0.2)


def best_of(phase: list[float]) -> float:
    """The shortest median of ten steps in a row."""
    return min(statistics.median(phase[at : at + BEST_OF]) for at in range(len(phase) - BEST_OF + 1))


def steps_until(phase: list[float], best_s: float) -> int:
    """Steps until five in a row have a median within 7 % of the best; their number if that never comes."""
    for done in range(len(phase) - WINDOW + 1):
        if statistics.median(phase[done : done + WINDOW]) <= WITHIN * best_s:
            return done
    return len(phase)


if __name__ == "__main__":
    main()
