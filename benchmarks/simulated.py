"""The simulator against the lab: step times and efficiency of runs that were simulated before they were made.

    python -m benchmarks.simulated --json
    python -m benchmarks.simulated --clusters pair wifi --json

For each cluster `potluck train` makes a run in the lab, which leaves profiles of all machines and of their exchange.
From these `potluck.simulate` simulates the next run, and that run is made: by how much the simulated seconds of a step,
and the part of the machines' own speed that the run reached, are off. `eventful` is the run of benchmarks.eventful on
`laptops`, from a cold start: a machine is slowed and freed, another is killed and comes back; its profiles come from a
calm run before it. The steps at which things happen, and how long the killed machine is away, are told to the
simulator; all else is its own. `--rows FILE ...` combines the JSON lines of several calls.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import prediction
from benchmarks.eventful import AWAY_S, zip_steps
from benchmarks.slowdown import SLOWER, wait_for_step
from benchmarks.support.balanced_run import Order, train
from benchmarks.support.crew import LabCrew
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import READY, READY_S, LabMachines
from lab import Lab
from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from potluck.measuring.profile_store import read_profile
from potluck.measuring.sources import make_cluster
from potluck.planning.cluster import Cluster
from potluck.simulate.figures import Figures
from potluck.simulate.scenario import MachineLoss, Scenario, SlowDown, WantedRun
from potluck.simulate.simulation import simulate

CLUSTERS = ("pair", "laptops", "mixed", "wifi", "dsl")
EVENTFUL = "eventful"
BARS = {"median_error": 0.08, "worst_error": 0.15}
BATCH = 256
STEPS = {"dsl": 30, "wifi": 50}
USUAL_STEPS = 60
EVENTFUL_BATCH, CALM_STEPS, EVENTFUL_STEPS = 288, 50, 150
PIECE = 64  # the micro-batch of benchmarks.support.balance_worker
SEEDS = 5


@dataclass(frozen=True)
class Measured:
    """A run's steps after its first ones."""

    step_s: float
    efficiency: float


def main() -> None:
    """Measure, print, and with --json end with one line for scripts; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", nargs="+", default=[*CLUSTERS, EVENTFUL], choices=[*CLUSTERS, EVENTFUL])
    parser.add_argument("--rows", nargs="+", type=Path, help="files that end with JSON lines of earlier calls")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    if options.rows:
        rows = [row for file in options.rows for row in json.loads(file.read_text().splitlines()[-1])["rows"]]
    else:
        with exit_on_lab_error():
            rows = [eventful() if name == EVENTFUL else steady(name) for name in options.clusters]
    for row in rows:
        print(
            f"{row['cluster']:>9}: a step simulated {row['simulated_step_s']:.3f} s, in the lab {row['step_s']:.3f} s, "
            f"off by {100 * row['step_error']:.1f} %; efficiency {row['simulated_efficiency']:.3f} and "
            f"{row['efficiency']:.3f}, off by {100 * row['efficiency_error']:.1f} %"
        )
    errors = [row[name] for row in rows for name in ("step_error", "efficiency_error")]
    figures: dict[str, Any] = {"median_error": statistics.median(errors), "worst_error": max(errors)}
    print(", ".join(f"{name} {value:.3f} (bar {BARS[name]})" for name, value in figures.items()))
    if options.json:
        print(json.dumps({"benchmark": "simulated", **figures, "rows": rows}))
    sys.exit(any(figures[name] > bar for name, bar in BARS.items()))


def steady(name: str) -> dict[str, Any]:
    """One cluster: a run that leaves profiles, a simulation from them, and the run that it foretells."""
    workload = prediction.Workload("simple_cnn", "base", BATCH, STEPS.get(name, USUAL_STEPS))
    with tempfile.TemporaryDirectory() as scratch, Lab(name) as lab:
        machines = LabMachines(lab)
        kept = [option for machine in machines.names for option in ("--keep", machine)]
        homes = {machine: Path(scratch, f"home-{machine}") for machine in machines.names}
        prediction.train(machines, homes, Path(scratch, "first"), workload, kept)
        cluster = profiled([file for home in homes.values() for file in home.glob("profiles/**/*.json")])
        before = look_at(commits_of(Path(scratch, "first"), machines.names), workload.steps // 2)
        run = WantedRun(batch=BATCH, num_steps=workload.steps, keep=tuple(machines.names))
        simulated = many(Scenario(cluster=cluster, wanted=run), first=workload.steps // 2)
        prediction.train(machines, homes, Path(scratch, "second"), workload, kept)
        measured = look_at(commits_of(Path(scratch, "second"), machines.names), workload.steps // 2)
    return {**compared(name, simulated, measured), "step_s_of_run_before": before.step_s}


def eventful() -> dict[str, Any]:
    """A run in which much happens, from the profiles of a calm one."""
    with tempfile.TemporaryDirectory() as scratch, Lab("laptops") as lab:
        first, second = lab.machines[:2]
        names = LabMachines(lab).names
        calm, folder = Path(scratch, "calm"), Path(scratch, "run")
        for place in (calm, folder):
            place.mkdir()
        train(lab, calm, Order("dynamic", EVENTFUL_BATCH, CALM_STEPS))
        cluster = with_pieces(profiled(list((calm / "home").glob("profiles/**/*.json"))))
        declared, steps, away_s = first.cores(), EVENTFUL_STEPS, []

        def strike(crew: LabCrew) -> None:
            for number, cores in ((1, declared / SLOWER), (2, declared)):
                wait_for_step(crew, first.name, number * steps // 5)
                first.slow(cores)
            wait_for_step(crew, first.name, 3 * steps // 5)
            second.kill()
            killed_s, before = time.monotonic(), len(crew.records(second.name))
            time.sleep(AWAY_S)
            crew.start(second.name, POTLUCK_HOME=str(crew.folder / "home")).expect(READY, READY_S)
            crew.machines.settle(second.name)
            while len(crew.records(second.name)) <= before and crew.workers[first.name].returncode is None:
                time.sleep(0.05)
            away_s.append(time.monotonic() - killed_s)

        crew = train(lab, folder, Order("dynamic", EVENTFUL_BATCH, steps), strike)
        measured = look_at({name: crew.steps(name) for name in names}, 1)
    run = WantedRun(batch=EVENTFUL_BATCH, num_steps=EVENTFUL_STEPS, keep=tuple(names), is_cold=True)
    scenario = Scenario(
        cluster=cluster,
        wanted=run,
        slow_downs=(SlowDown(first.name, 1 / SLOWER, steps // 5 + 1, 2 * steps // 5),),
        losses=(MachineLoss(second.name, 3 * steps // 5 + 1, away_s[0]),),
    )
    return {**compared(EVENTFUL, many(scenario, first=1), measured), "away_s": away_s[0]}


def profiled(files: Sequence[Path]) -> Cluster:
    """The cluster that a run's profiles describe."""
    return make_cluster(sorted((read_profile(file) for file in files), key=lambda one: one.machine))


def with_pieces(cluster: Cluster) -> Cluster:
    """The workers with the micro-batch that their script asks for."""
    workers = [replace(one, compute=replace(one.compute, memory_cap=PIECE)) for one in cluster.workers]
    return replace(cluster, workers=tuple(workers))


def many(scenario: Scenario, *, first: int) -> Measured:
    """The simulated steps after the first ones: the mean over several seeds."""
    runs = [simulate(replace(scenario, seed=seed)) for seed in range(SEEDS)]
    return Measured(
        statistics.fmean(statistics.fmean(run.steps_s[first:]) for run in runs),
        statistics.fmean(efficiency_after(run, first) for run in runs),
    )


def efficiency_after(run: Figures, first: int) -> float:
    """Samples of the later steps by those that the machines could have trained at the rates of the same steps."""
    return sum(run.samples_of[first:]) / sum(run.possible_of[first:])


def commits_of(run: Path, machines: Sequence[str]) -> dict[str, list[StepCommitted]]:
    """By machine: the steps that its event files hold."""
    found: dict[str, list[StepCommitted]] = {}
    for machine in machines:
        files = sorted((run / machine / "run" / "events").glob("*.jsonl"))
        events = (record.event for file in files for record in read_records(file))
        found[machine] = [event for event in events if isinstance(event, StepCommitted)]
    return found


def look_at(commits: dict[str, list[StepCommitted]], first: int) -> Measured:
    """What the later steps of a lab run show.

    A step's seconds differ between machines by when each began it: their mean, over many steps, is that of the clock.
    Efficiency is the samples by those that the machines could have trained at the rates of the same steps.
    """
    later = {name: [event for event in each if event.step >= first] for name, each in commits.items()}
    seconds, trained, possible = [], 0.0, 0.0
    for steps in zip_steps(later):
        seconds.append(statistics.fmean(one.seconds for one in steps))
        rate = sum(one.own_samples / one.timing.own_s for one in steps if one.timing and one.own_samples)
        trained += sum(one.own_samples for one in steps)
        possible += rate * seconds[-1]
    return Measured(statistics.fmean(seconds), trained / possible)


def compared(name: str, simulated: Measured, measured: Measured) -> dict[str, Any]:
    """One row."""
    return {
        "cluster": name,
        "simulated_step_s": simulated.step_s,
        "step_s": measured.step_s,
        "step_error": abs(simulated.step_s / measured.step_s - 1),
        "simulated_efficiency": simulated.efficiency,
        "efficiency": measured.efficiency,
        "efficiency_error": abs(simulated.efficiency / measured.efficiency - 1),
    }


if __name__ == "__main__":
    main()
