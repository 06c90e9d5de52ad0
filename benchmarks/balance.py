"""How well unequal machines are used: bare equal-split DDP, and Potluck with each policy from a cold start, in the lab.

    python -m benchmarks.balance --cluster pair --json

Rounds repeat all of it in turns, so that whatever else the computer does weighs on all alike; figures are medians over
the rounds. Solo speeds are measured in the same rounds. A run is steady in its second half. It is balanced from the
first step on whose plan is within 5 % of the best one for the speeds that the machines have then. With --keep the run
folders of the first round stay, for `potluck compare`.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import ddp_baseline
from benchmarks.support.balanced_run import Order, train
from benchmarks.support.crew import gather
from benchmarks.support.distance import distances, steps_of, steps_until
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import LabMachines
from lab import Lab
from potluck.events.log import read_records
from potluck.events.state import replay
from potluck.planning.policies import POLICIES

WITHIN = 0.05


@dataclass(frozen=True)
class Trained:
    """One run of Potluck."""

    steps_s: list[float]
    plan_changes: int
    steps_until_balanced: int | None

    @property
    def steady_step_s(self) -> float:
        return statistics.fmean(self.steps_s[len(self.steps_s) // 2 :])


@dataclass(frozen=True)
class Row:
    """How well one way to split used the machines: medians over the rounds."""

    samples_per_s: float
    efficiency: float
    plan_changes: int
    steps_until_balanced: int | None


def main() -> None:
    """Measure, print a table, and with --json one line for scripts at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="pair", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120, help="steps of every Potluck run")
    parser.add_argument("--batch", type=int, default=512, help="global batch")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--keep", type=Path, help="a new folder that gets a run folder of each policy")
    options = parser.parse_args()
    with exit_on_lab_error():
        figures = measure(options)
    if options.json:
        print(json.dumps(figures))


def measure(options: argparse.Namespace) -> dict[str, object]:
    """All rounds: prints the table, and returns the figures of the last line."""
    bare: list[ddp_baseline.Speeds] = []
    trained: dict[str, list[Trained]] = {policy: [] for policy in options.policies}
    with tempfile.TemporaryDirectory() as scratch, Lab(options.cluster) as lab:
        machines = LabMachines(lab)
        batch = options.batch // len(machines.names) * len(machines.names)
        for number in range(options.rounds):
            go = Path(scratch, f"go-{number}")
            bare.append(ddp_baseline.run(machines, go, batch=batch, rounds=3, steps=5, solo_s=1.5))
            for policy in options.policies:
                folder = Path(scratch, f"{policy}-{number}")
                keep = options.keep / policy if options.keep and number == 0 else None
                trained[policy].append(run_policy(lab, folder, Order(policy, batch, options.steps), keep))
    solo = {name: statistics.median(one.solo[name] for one in bare) for name in machines.names}
    total = sum(solo.values())
    together = statistics.median(one.together for one in bare)
    rows = {
        "ddp": Row(round(together, 1), round(together / total, 3), 0, None),
        **{policy: summarise(runs, batch, total) for policy, runs in trained.items()},
    }
    for name, row in rows.items():
        print(
            f"{name:>14} {row.samples_per_s:8.1f} samples/s, {row.efficiency:.3f} of the sum of solo speeds, "
            f"{row.plan_changes} plan changes, balanced after {row.steps_until_balanced} steps"
        )
    print(f"{'sum of solo':>14} {total:8.1f} samples/s")
    return {
        "benchmark": "balance",
        "cluster": options.cluster,
        "global_batch": batch,
        "rounds": options.rounds,
        "solo_samples_per_s": {name: round(speed, 1) for name, speed in solo.items()},
        "sum_of_solo_samples_per_s": round(total, 1),
        **{name: asdict(row) for name, row in rows.items()},
    }


def run_policy(lab: Lab, folder: Path, order: Order, keep: Path | None) -> Trained:
    """One run of Potluck in this lab, from a cold start: nothing is known of the machines beforehand."""
    folder.mkdir()
    crew = train(lab, folder, order)
    if keep is not None:
        gather(crew, folder / "gathered")
        shutil.copytree(folder / "gathered", keep)
    workers = [steps_of(crew, name) for name in crew.workers]
    (first_log,) = crew.event_files(crew.machines.names[0])
    return Trained(
        [event.seconds for event in workers[0].values()],
        replay(list(read_records(first_log))).num_plan_changes,
        steps_until(distances(workers), WITHIN),
    )


def summarise(runs: Sequence[Trained], batch: int, total: float) -> Row:
    """One policy's runs; balanced after so many steps if most of them were balanced at all."""
    samples_per_s = statistics.median(batch / run.steady_step_s for run in runs)
    known = [run.steps_until_balanced for run in runs if run.steps_until_balanced is not None]
    return Row(
        samples_per_s=round(samples_per_s, 1),
        efficiency=round(samples_per_s / total, 3),
        plan_changes=statistics.median_high(run.plan_changes for run in runs),
        steps_until_balanced=statistics.median_high(known) if len(known) > len(runs) / 2 else None,
    )


if __name__ == "__main__":
    main()
