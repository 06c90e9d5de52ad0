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
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ddp_baseline
from benchmarks.balanced_run import Order, event_files, train
from benchmarks.crew import START_CORES, gather, let_go
from benchmarks.distance import distances, steps_of, steps_until
from benchmarks.pinning import pin
from lab import Lab, LabError
from potluck.events.log import read_records
from potluck.events.state import replay
from potluck.planning.policies import POLICIES

WITHIN = 0.05


@dataclass(frozen=True)
class Bare:
    """One round of stock DDP, and every machine alone."""

    samples_per_s: float
    solo: dict[str, float]


@dataclass(frozen=True)
class Trained:
    """One run of Potluck."""

    steps_s: list[float]
    batch: int
    plan_changes: int
    steps_until_balanced: int | None

    @property
    def steady_step_s(self) -> float:
        return statistics.fmean(self.steps_s[len(self.steps_s) // 2 :])


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
    try:
        figures = measure(options)
    except LabError as error:
        sys.exit(f"error: {error}")
    for name in ("ddp", *options.policies):
        row = figures[name]
        print(
            f"{name:>14} {row['samples_per_s']:8.1f} samples/s, {row['efficiency']:.3f} of the sum of solo speeds, "
            f"{row['plan_changes']} plan changes, balanced after {row['steps_until_balanced']} steps"
        )
    print(f"{'sum of solo':>14} {figures['sum_of_solo_samples_per_s']:8.1f} samples/s")
    if options.json:
        print(json.dumps(figures))


def measure(options: argparse.Namespace) -> dict[str, object]:
    """All rounds, as the figures of the last line."""
    bare: list[Bare] = []
    trained: dict[str, list[Trained]] = {policy: [] for policy in options.policies}
    with tempfile.TemporaryDirectory() as scratch, Lab(options.cluster) as lab:
        batch = options.batch // len(lab.machines) * len(lab.machines)
        declared = {machine.name: machine.cores() for machine in lab.machines}
        for number in range(options.rounds):
            bare.append(run_bare(lab, declared, Path(scratch, f"bare-{number}"), batch))
            for policy in options.policies:
                folder = Path(scratch, f"{policy}-{number}")
                keep = options.keep / policy if options.keep and number == 0 else None
                trained[policy].append(
                    run_policy(lab, declared, folder, policy=policy, batch=batch, steps=options.steps, keep=keep)
                )
    solo = {name: statistics.median(round_.solo[name] for round_ in bare) for name in declared}
    total = sum(solo.values())
    rows: dict[str, object] = {
        policy: {
            **_speeds(statistics.median(batch / run.steady_step_s for run in runs), total),
            "plan_changes": statistics.median_high(run.plan_changes for run in runs),
            "steps_until_balanced": _median_or_none([run.steps_until_balanced for run in runs]),
        }
        for policy, runs in trained.items()
    }
    ddp = _speeds(statistics.median(round_.samples_per_s for round_ in bare), total)
    return {
        "benchmark": "balance",
        "cluster": options.cluster,
        "global_batch": batch,
        "rounds": options.rounds,
        "solo_samples_per_s": {name: round(speed, 1) for name, speed in solo.items()},
        "sum_of_solo_samples_per_s": round(total, 1),
        "ddp": {**ddp, "plan_changes": 0, "steps_until_balanced": None},
        **rows,
    }


def run_bare(lab: Lab, declared: dict[str, float], folder: Path, batch: int) -> Bare:
    """Stock DDP in this lab, machines in turns alone and together."""
    folder.mkdir()
    go = folder / "go"
    pinned = pin(lab.machines)
    for machine in lab.machines:
        machine.slow(START_CORES)
    rounds = 3
    arguments = ["--batch", str(batch), "--rounds", str(rounds), "--steps", "5", "--go", str(go)]
    workers = ddp_baseline.start_workers(lab.machines, arguments, pinned)
    let_go(lab, declared, {worker.machine: worker for worker in workers}, go)
    results = ddp_baseline.gather(workers, rounds)
    return Bare(
        ddp_baseline.median_speed(results, lab.machines[0].name, "together"),
        {name: ddp_baseline.median_speed(results, name, "solo") for name in declared},
    )


def run_policy(
    lab: Lab,
    declared: dict[str, float],
    folder: Path,
    *,
    policy: str,
    batch: int,
    steps: int,
    keep: Path | None = None,
) -> Trained:
    """One run of Potluck in this lab, from a cold start: nothing is known of the machines beforehand."""
    folder.mkdir()
    crew = train(lab, declared, folder, Order(policy, batch, steps))
    if keep is not None:
        gather(crew, "run", folder / "gathered")
        shutil.copytree(folder / "gathered", keep)
    logs = event_files(crew)
    workers = [steps_of(log) for log in logs]
    return Trained(
        [event.seconds for event in workers[0].values()],
        batch,
        replay(list(read_records(logs[0]))).num_plan_changes,
        steps_until(distances(workers), WITHIN),
    )


def _median_or_none(values: list[int | None]) -> int | None:
    """The median, if most rounds have a value."""
    known = [value for value in values if value is not None]
    return statistics.median_high(known) if len(known) > len(values) / 2 else None


def _speeds(samples_per_s: float, total: float) -> dict[str, float]:
    return {"samples_per_s": round(samples_per_s, 1), "efficiency": round(samples_per_s / total, 3)}


if __name__ == "__main__":
    main()
