"""A machine slows down in the middle of a run, and is freed again: how many steps until the plan fits, in the lab.

    python -m benchmarks.slowdown --cluster laptops --json

The first machine, the fastest, gets a third of its cores after a third of the steps, and all of them after two thirds.
The plan fits from the first step on that is within 7 % of the best plan for the speeds that the machines have then.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.support.balanced_run import Order, train
from benchmarks.support.crew import LabCrew
from benchmarks.support.distance import distances, steps_of, steps_until
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import READY_S
from lab import Lab, LabError
from potluck.events.log import read_records
from potluck.events.types import PlanChanged

WITHIN = 0.07
BAR = 20
SLOWER = 3.0


def main() -> None:
    """Measure, print, and with --json end with one line for scripts; exit 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="laptops", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=512, help="global batch")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    with exit_on_lab_error():
        steps_s, off, changes, edges = run(options.cluster, options.steps, options.batch)
    figures: dict[str, object] = {"benchmark": "slowdown", "cluster": options.cluster, "global_batch": options.batch}
    missed = False
    for name, (start, end) in zip(("usual", "slowed", "freed"), pairwise([0, *edges, len(steps_s)]), strict=True):
        until = steps_until(off[start:end], WITHIN)
        num_changes = sum(start < step <= end for step in changes)
        settled_s = statistics.median(steps_s[(start + end) // 2 : end])
        figures[name] = {"step_s": settled_s, "steps_until_it_fits": until, "plan_changes": num_changes}
        missed |= until is None or until > BAR
        print(
            f"{name:>8}: a step takes {steps_s[start] * 1e3:.0f} ms at first, {settled_s * 1e3:.0f} ms in the end; "
            f"within 7 % of the best plan after {until} steps; {num_changes} plan changes in {end - start} steps"
        )
    if options.json:
        print(json.dumps(figures))
    sys.exit(missed)


def run(cluster: str, steps: int, batch: int) -> tuple[list[float], list[float], list[int], list[int]]:
    """Seconds of every step, how far from the best it is, and the steps at which the plan and the machine changed."""
    with tempfile.TemporaryDirectory() as scratch, Lab(cluster) as lab:
        first = lab.machines[0]
        declared = first.cores()
        edges: list[int] = []

        def slow_and_free(crew: LabCrew) -> None:
            for number, cores in ((1, declared / SLOWER), (2, declared)):
                wait_for_step(crew, first.name, number * steps // 3)
                first.slow(cores)
                edges.append(len(crew.records(first.name)))

        crew = train(lab, Path(scratch), Order("dynamic", batch, steps), slow_and_free)
        workers = [steps_of(crew, name) for name in crew.workers]
        (first_log,) = crew.event_files(first.name)
        events = [record.event for record in read_records(first_log)]
    return (
        [event.seconds for event in workers[0].values()],
        distances(workers),
        [event.step for event in events if isinstance(event, PlanChanged) and event.reason][1:],
        edges,
    )


def wait_for_step(crew: LabCrew, name: str, step: int) -> None:
    """Until the machine's worker has committed so many steps."""
    until = time.monotonic() + READY_S + 5.0 * step
    while len(crew.records(name)) < step:
        if time.monotonic() > until or crew.workers[name].returncode is not None:
            raise LabError(f"step {step} was never reached:\n{crew.workers[name].output}", fix="see its output")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
