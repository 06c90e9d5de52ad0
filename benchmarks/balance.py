"""How well unequal machines are used: Potluck with each policy from a cold start, and equal-split DDP, in the lab.

    python -m benchmarks.balance --cluster pair --json

Within one run, Potluck, every machine alone and bare DDP take turns in slices of a few seconds: whatever else the
computer does weighs on all alike. Figures are medians over the slices of the second half of all rounds, each slice
compared with the slices beside it. A run is balanced from the first step on whose plan is within 5 % of the best one
for the speeds that the machines have then. With --keep the run folders of the first round stay, for `potluck compare`.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.ddp_baseline import read_speeds, rendezvous
from benchmarks.support.balance_models import MODELS
from benchmarks.support.crew import LabCrew, gather
from benchmarks.support.distance import distances, steps_of, steps_until
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import READY_S, LabMachines, wait_for_all
from lab import Lab
from potluck.events.log import read_records
from potluck.events.state import replay
from potluck.planning.policies import POLICIES

WITHIN = 0.05


@dataclass(frozen=True)
class Slice:
    """Samples/s of neighbouring slices of one run."""

    potluck: float
    ddp: float
    solo: dict[str, float]

    @property
    def total(self) -> float:
        """The sum of the solo speeds."""
        return sum(self.solo.values())


@dataclass(frozen=True)
class Trained:
    """One run of Potluck."""

    steady: list[Slice]
    """The slices of its second half."""
    plan_changes: int
    steps_until_balanced: int | None


@dataclass(frozen=True)
class Row:
    """How well one policy used the machines: medians over slices and rounds."""

    samples_per_s: float
    efficiency: float
    """By the sum of the solo speeds."""
    speedup: float
    """Times as fast as bare DDP."""
    plan_changes: int
    steps_until_balanced: int | None


def main() -> None:
    """Measure, print a table, and with --json one line for scripts at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="pair", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=72, help="steps of every Potluck run")
    parser.add_argument("--batch", type=int, default=512, help="global batch")
    parser.add_argument("--policies", nargs="+", default=["dynamic"], choices=list(POLICIES))
    parser.add_argument(
        "--model", choices=list(MODELS), default="small_cnn", help="simple_cnn is that of potluck train"
    )
    parser.add_argument("--tuning", action="store_true", help="each machine finds its fastest way to do the same maths")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--keep", type=Path, help="a new folder that gets a run folder of each policy")
    options = parser.parse_args()
    with exit_on_lab_error():
        figures = measure(options)
    if options.json:
        print(json.dumps(figures))


def measure(options: argparse.Namespace) -> dict[str, object]:
    """All rounds: prints the table, and returns the figures of the last line."""
    trained: dict[str, list[Trained]] = {policy: [] for policy in options.policies}
    with tempfile.TemporaryDirectory() as scratch, Lab(options.cluster) as lab:
        num_machines = len(lab.machines)
        batch = options.batch // num_machines * num_machines
        for number in range(options.rounds):
            for policy in options.policies:
                folder = Path(scratch, f"{policy}-{number}")
                keep = options.keep / policy if options.keep and number == 0 else None
                arguments = ["--steps", options.steps, "--batch", batch, "--load-balance-policy", policy]
                arguments += ["--model", options.model]
                arguments += ["--tuning"] if options.tuning else []
                trained[policy].append(run_policy(lab, folder, arguments, keep))
    steady = [one for runs in trained.values() for run in runs for one in run.steady]
    solo = {name: statistics.median(one.solo[name] for one in steady) for name in steady[0].solo}
    rows = {policy: summarise(runs) for policy, runs in trained.items()}
    ddp = {
        "samples_per_s": round(statistics.median(one.ddp for one in steady), 1),
        "efficiency": round(statistics.median(one.ddp / one.total for one in steady), 3),
    }
    print(f"{'ddp':>14} {ddp['samples_per_s']:8.1f} samples/s, {ddp['efficiency']:.3f} of the sum of solo speeds")
    for name, row in rows.items():
        print(
            f"{name:>14} {row.samples_per_s:8.1f} samples/s, {row.efficiency:.3f} of the sum of solo speeds, "
            f"{row.speedup:.2f} times bare DDP, {row.plan_changes} plan changes, "
            f"balanced after {row.steps_until_balanced} steps"
        )
    print(f"{'sum of solo':>14} {sum(solo.values()):8.1f} samples/s")
    return {
        "benchmark": "balance",
        "cluster": options.cluster,
        "model": options.model,
        "global_batch": batch,
        "rounds": options.rounds,
        "tuning": options.tuning,
        "solo_samples_per_s": {name: round(speed, 1) for name, speed in solo.items()},
        "sum_of_solo_samples_per_s": round(sum(solo.values()), 1),
        "ddp": ddp,
        **{name: asdict(row) for name, row in rows.items()},
    }


def run_policy(lab: Lab, folder: Path, arguments: Sequence[object], keep: Path | None) -> Trained:
    """One run in this lab, from a cold start: nothing is known of the machines beforehand."""
    folder.mkdir()
    machines, go = LabMachines(lab), folder / "go"
    crew = LabCrew(
        lab,
        folder,
        [*arguments, "--go", go, "--keep", *machines.names],
        expected=len(machines.names),
        module="benchmarks.support.sliced_worker",
    )
    try:
        for name in machines.names:
            crew.start(name, POTLUCK_HOME=str(folder / "home"), **rendezvous(machines, name))
        machines.let_go(crew.workers.values(), go)
        wait_for_all(crew.workers.values(), READY_S + 600.0)
    finally:
        crew.close()
    if keep is not None:
        gather(crew, folder / "gathered")
        shutil.copytree(folder / "gathered", keep)
    workers = [steps_of(crew, name) for name in crew.workers]
    (first_log,) = crew.event_files(machines.names[0])
    return Trained(
        steady_slices(crew),
        replay(list(read_records(first_log))).num_plan_changes,
        steps_until(distances(workers), WITHIN),
    )


def steady_slices(crew: LabCrew) -> list[Slice]:
    """The slices of the second half of a run."""
    found, names = read_speeds(crew.workers.values()), crew.machines.names
    num_slices = len(found[names[0], "ddp"])
    return [
        Slice(
            potluck=found[names[0], "potluck"][number],
            ddp=found[names[0], "ddp"][number],
            solo={name: found[name, "solo"][number] for name in names},
        )
        for number in range(num_slices // 2, num_slices)
    ]


def summarise(runs: Sequence[Trained]) -> Row:
    """One policy's runs; balanced after so many steps if most of them were balanced at all."""
    steady = [one for run in runs for one in run.steady]
    known = [run.steps_until_balanced for run in runs if run.steps_until_balanced is not None]
    return Row(
        samples_per_s=round(statistics.median(one.potluck for one in steady), 1),
        efficiency=round(statistics.median(one.potluck / one.total for one in steady), 3),
        speedup=round(statistics.median(one.potluck / one.ddp for one in steady), 2),
        plan_changes=statistics.median_high(run.plan_changes for run in runs),
        steps_until_balanced=statistics.median_high(known) if len(known) > len(runs) / 2 else None,
    )


if __name__ == "__main__":
    main()
