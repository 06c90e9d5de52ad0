"""One run in which much happens, in the lab: a machine is slowed and freed, another is killed and comes back.

    python -m benchmarks.eventful --json

After a fifth of the steps the first machine gets a third of its cores, after two fifths all of them; after three fifths
the second machine is killed, and started again after three seconds. Figures over the whole run: its samples by what the
machines that were there could have trained alone; the changes of shares after the first plan; and how far a machine's
share went beyond where it settled, as a part of the batch. With --keep the run folder stays, for `potluck report` and
the dashboard.

What a machine could have trained alone is the rate at which it computed its own samples in the same step: the speed of
the moment, also where the computer under the lab gets slower. `against_before` is the same with the speeds that each
machine was measured to have right before the run.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from benchmarks import ddp_baseline
from benchmarks.slowdown import SLOWER, wait_for_step
from benchmarks.support.balanced_run import Order, train
from benchmarks.support.crew import LabCrew, gather
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import READY, READY_S, LabMachines
from lab import Lab, LabError
from potluck.events.log import read_records
from potluck.events.types import PlanChanged, Record, StepCommitted

AWAY_S = 3.0
BARS = {"efficiency": 0.85, "overshoot": 0.10, "plan_changes": 5}


def main() -> None:
    """Measure, print, and with --json end with one line for scripts; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="laptops", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=288, help="global batch")
    parser.add_argument("--keep", type=Path, help="a new folder that gets the run folder")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    with exit_on_lab_error():
        figures = run(options)
    print(
        f"efficiency {figures['efficiency']:.3f} (bar {BARS['efficiency']}; against the speeds before the run "
        f"{figures['against_before']:.3f}), {figures['plan_changes']} plan changes "
        f"(bar {BARS['plan_changes']}), shares overshot by {figures['overshoot']:.3f} of the batch "
        f"(bar {BARS['overshoot']})"
    )
    if options.json:
        print(json.dumps({"benchmark": "eventful", "cluster": options.cluster, **figures}))
    is_good = figures["efficiency"] >= BARS["efficiency"] and all(
        figures[name] <= BARS[name] for name in ("overshoot", "plan_changes")
    )
    sys.exit(not is_good)


def run(options: argparse.Namespace) -> dict[str, float]:
    """The whole run, in one lab."""
    with tempfile.TemporaryDirectory() as scratch, Lab(options.cluster) as lab:
        first, second = lab.machines[:2]
        machines = LabMachines(lab)
        names = machines.names
        batch = options.batch // len(machines.names) * len(machines.names)
        solo = ddp_baseline.run(machines, Path(scratch, "go"), batch=batch, rounds=3, steps=2, solo_s=2.0).solo
        declared, edges_s = first.cores(), []

        def strike(crew: LabCrew) -> None:
            for number, cores in ((1, declared / SLOWER), (2, declared)):
                wait_for_step(crew, first.name, number * options.steps // 5)
                first.slow(cores)
                edges_s.append(time.time())
            wait_for_step(crew, first.name, 3 * options.steps // 5)
            second.kill()
            edges_s.append(time.time())
            before = len(crew.records(second.name))
            time.sleep(AWAY_S)
            crew.start(second.name, POTLUCK_HOME=str(crew.folder / "home")).expect(READY, READY_S)
            crew.machines.settle(second.name)
            while len(crew.records(second.name)) <= before:
                if crew.workers[first.name].returncode is not None:
                    raise LabError(f"the run had ended before {second.name} was back", fix="more --steps")
                time.sleep(0.2)
            edges_s.append(time.time())

        folder = Path(scratch, "run")
        folder.mkdir()
        crew = train(lab, folder, Order("dynamic", batch, options.steps), strike)
        told = {name: [record for file in crew.event_files(name) for record in read_records(file)] for name in names}
        records = told[first.name]
        all_commits = {
            name: [one.event for one in each if isinstance(one.event, StepCommitted)] for name, each in told.items()
        }
        if options.keep:
            gather(crew, folder / "gathered")
            shutil.copytree(folder / "gathered", options.keep)
    commits = [record for record in records if isinstance(record.event, StepCommitted)]
    return {
        "efficiency": round(efficiency_now(all_commits), 3),
        "against_before": round(efficiency(commits, batch, solo, (first.name, second.name), edges_s), 3),
        "plan_changes": len(shares_of(records)) - 1,
        "overshoot": round(overshoot(records, [commits[0].time, *edges_s, commits[-1].time]), 3),
    }


def efficiency_now(commits: Mapping[str, Sequence[StepCommitted]]) -> float:
    """Samples after the first commit by those that machines could have trained at the rates of the same steps.

    `commits`: by machine. A step without a machine counts without it; time lost in a step counts in full.
    """
    trained = possible = 0.0
    for steps in zip_steps(commits):
        rate = sum(one.own_samples / one.timing.compute_s for one in steps if one.timing and one.own_samples)
        trained += sum(one.own_samples for one in steps)
        possible += rate * min(one.seconds for one in steps)
    return trained / possible


def zip_steps(commits: Mapping[str, Sequence[StepCommitted]]) -> Iterator[list[StepCommitted]]:
    """Each step's events of all machines that committed it, without the first step."""
    by_step: dict[int, list[StepCommitted]] = {}
    for events in commits.values():
        for event in events:
            by_step.setdefault(event.step, []).append(event)
    return (by_step[step] for step in sorted(by_step)[1:])


def shares_of(records: Sequence[Record]) -> list[Mapping[str, float]]:
    """The shares of one plan after the other, each other than the one before."""
    found: list[Mapping[str, float]] = []
    for record in records:
        if isinstance(record.event, PlanChanged) and (not found or found[-1] != record.event.shares):
            found.append(record.event.shares)
    return found


def efficiency(
    commits: Sequence[Record], batch: int, solo: Mapping[str, float], struck: tuple[str, str], edges_s: Sequence[float]
) -> float:
    """Samples after the first commit by those that the machines which were there could have trained alone."""
    (slowed, killed), (slow_s, free_s, kill_s, back_s) = struck, edges_s
    wall_s = commits[-1].time - commits[0].time
    possible = sum(solo.values()) * wall_s
    possible -= solo[slowed] * (1 - 1 / SLOWER) * (free_s - slow_s)
    possible -= solo[killed] * (back_s - kill_s)
    return batch * (len(commits) - 1) / possible


def overshoot(records: Sequence[Record], edges_s: Sequence[float]) -> float:
    """How far any share went beyond where it settled, in the phases between the edges, as a part of the batch."""
    farthest = 0.0
    before: Mapping[str, float] = {}
    for phase in phases(records, edges_s):
        settled = phase[-1]
        for worker, share in settled.items():
            direction = 1 if share >= before.get(worker, share) else -1
            farthest = max(farthest, *(direction * (plan[worker] - share) for plan in phase))
        before = settled
    return farthest


def phases(records: Sequence[Record], edges_s: Sequence[float]) -> Iterator[list[Mapping[str, float]]]:
    """The plans between two edges and with the same workers, as parts of the batch."""
    for start_s, end_s in pairwise(edges_s):
        plans = [
            {worker: share / sum(event.shares.values()) for worker, share in event.shares.items()}
            for record in records
            if isinstance(event := record.event, PlanChanged) and start_s <= record.time < end_s
        ]
        for _, same in groupby(plans, key=sorted):
            yield list(same)


if __name__ == "__main__":
    main()
