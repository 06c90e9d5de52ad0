"""How well `potluck plan` foretells a run's samples/s, in the lab: profile every machine, plan, train, compare.

    python -m benchmarks.prediction --cluster pair --json

Everything is the user's own command, on machines at their declared cores (only imports get more): `potluck profile` on
each, a sweep of the links, `potluck plan`, `potluck train` on all of them. A second plan is made from what that run
showed, and compared with a second run. A run is steady in its second half. With --keep a third run keeps every machine,
and is compared with the plan that does so. Rounds repeat all of it: a computer that is faster when it is measured than
when it trains would tell of itself, not of the plan. Figures are medians over the rounds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import links
from benchmarks.support.crew import LIGHTHOUSE, PORT, worker_variables
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import READY_S, ROOT, LabMachines, wait_for_all
from lab import Lab, LabError, Process
from potluck.events.log import read_records
from potluck.events.types import MachineBenched, StepCommitted

BAR = 0.10
POTLUCK = [sys.executable, "-m", "potluck"]


@dataclass(frozen=True)
class Workload:
    """What is trained."""

    model: str
    size: str
    batch: int
    steps: int

    @property
    def options(self) -> list[str]:
        return ["--model", self.model, "--model-size", self.size, "--global-batch", str(self.batch)]


@dataclass(frozen=True)
class Seen:
    """A run's second half."""

    samples_per_s: float
    work_s: dict[str, float]
    """Own work of every machine that took part."""
    exchange_s: float
    benched: list[str]
    """At any time of the run."""


def main() -> None:
    """Measure, print, and with --json end with one line for scripts; exit 1 where an error is above the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="pair", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--model", default="simple_cnn")
    parser.add_argument("--model-size", default="base")
    parser.add_argument("--batch", type=int, default=256, help="global batch")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="also run with every machine kept, and compare that")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    workload = Workload(options.model, options.model_size, options.batch, options.steps)
    with exit_on_lab_error():
        figures = measure(options.cluster, workload, rounds=options.rounds, keep=options.keep)
    for row in figures["rows"]:
        print(
            f"{row['from']:>28}: predicted {row['predicted_samples_per_s']:7.1f} samples/s, "
            f"measured {row['measured_samples_per_s']:7.1f}, off by {100 * row['error']:.1f} %; benched: "
            f"{', '.join(row['benched']) or 'nobody'} (the run: {', '.join(row['benched_in_run']) or 'nobody'})"
        )
    if options.json:
        print(json.dumps(figures))
    sys.exit(any(row["error"] > BAR for row in figures["rows"]))


def measure(cluster: str, workload: Workload, *, rounds: int, keep: bool) -> dict[str, Any]:
    """In every round a plan from trials and a run, then a plan from that run and another run."""
    rates = [
        f"{name}={link.bandwidth_bytes_per_s * 8 / 1e6:.3f}mbit,{link.latency_s * 1e3:.3f}ms"
        for name, link in links.measure(cluster).machines.items()
    ]
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch, Lab(cluster) as lab:
        machines = LabMachines(lab)
        links_swept = [option for rate in rates for option in ("--link", rate)]
        kept = [option for name in machines.names for option in ("--keep", name)]
        for number in range(rounds):
            homes = {name: Path(scratch, f"home-{number}-{name}") for name in machines.names}
            profile_all(machines, homes, workload)
            for source, more, wishes in (
                ("trials", links_swept, []),
                ("the run before", [], []),
                *([("the run before, all kept", [], kept)] if keep else []),
            ):
                predicted = plan(homes, workload, [*more, *wishes])
                folder = Path(scratch, f"run-{number}-{source}")
                train(machines, homes, folder, workload, wishes)
                seen = look_at(folder, machines.names, workload.batch)
                found.setdefault(source, []).append(compare(predicted, seen))
    return {
        "benchmark": "prediction",
        "cluster": cluster,
        "model": workload.model,
        "links": rates,
        "rows": [summarise(source, each) for source, each in found.items()],
    }


def compare(predicted: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """A plan, and what came of it."""
    return {
        "predicted_samples_per_s": predicted["samples_per_s"],
        "measured_samples_per_s": seen.samples_per_s,
        "shares": predicted["shares"],
        "predicted_work_s": predicted["work_s"],
        "measured_work_s": seen.work_s,
        "predicted_exchange_s": predicted["exposed_exchange_s"],
        "measured_exchange_s": seen.exchange_s,
        "benched": predicted["benched"],
        "benched_in_run": seen.benched,
    }


def summarise(source: str, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """One row: medians over the rounds, of speeds and of what was predicted against what came right after it; whoever
    was benched in any of them; and the rounds themselves.
    """
    ratios = [one["predicted_samples_per_s"] / one["measured_samples_per_s"] for one in rounds]
    predicted, measured = (
        statistics.median(one[f"{which}_samples_per_s"] for one in rounds) for which in ("predicted", "measured")
    )
    return {
        "from": source,
        "predicted_samples_per_s": predicted,
        "measured_samples_per_s": measured,
        "error": abs(statistics.median(ratios) - 1),
        **{who: sorted({name for one in rounds for name in one[who]}) for who in ("benched", "benched_in_run")},
        "rounds": rounds,
    }


def profile_all(machines: LabMachines, homes: dict[str, Path], workload: Workload) -> None:
    """Every machine measures itself, all at once."""
    command = [*POTLUCK, "profile", *workload.options, "--device", "cpu"]
    started = [machines.start(name, command, own_variables(homes[name])) for name in machines.names]
    for process in started:
        process.expect("measuring", READY_S)
    machines.settle()
    wait_for_all(started, 300)


def own_variables(home: Path) -> dict[str, str]:
    """Of every command of a machine: it is tuned, in trials and in runs, as a user's is."""
    return {"POTLUCK_HOME": str(home), "POTLUCK_TUNING": "1"}


def plan(homes: dict[str, Path], workload: Workload, wishes: list[str]) -> dict[str, Any]:
    """What `potluck plan` says of all machines' profiles."""
    files = [str(path) for home in homes.values() for path in sorted(home.glob("profiles/**/*.json"))]
    # Of this run and not of a long one: whether benching a machine pays depends on how many steps are left.
    command = [*POTLUCK, "plan", *files, *workload.options, "--steps", str(workload.steps), *wishes, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"potluck plan failed:\n{done.stdout}{done.stderr}", fix="see its output")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def train(machines: LabMachines, homes: dict[str, Path], folder: Path, workload: Workload, wishes: list[str]) -> None:
    """One run on all machines."""
    host = machines.lab.machines[0]
    lighthouse = host.start([*LIGHTHOUSE, "--bind", f"{host.address}:{PORT}"])
    command = [
        *(*POTLUCK, "train", "--experiment-name", "run", "--dataset", "synthetic_image", *workload.options, *wishes),
        # All steps are of one epoch: at the end of an epoch steps take longer, and medians would be of fewer steps.
        *("--max-steps", str(workload.steps), "--num-samples", str(workload.batch * workload.steps), "--epochs", "1"),
        *("--device", "cpu"),
    ]

    try:
        started = []
        for name in machines.names:
            told = {**worker_variables(host.address, folder / name, len(homes)), **own_variables(homes[name])}
            started.append(machines.start(name, command, told))
        wait_for_events(folder, started)
        machines.settle()
        wait_for_all(started, 120 + 10 * workload.steps)
    finally:
        lighthouse.kill()
        lighthouse.wait(10)


def wait_for_events(folder: Path, started: list[Process]) -> None:
    """Until every worker has begun its event file: that comes before the first step."""
    until = time.monotonic() + READY_S
    while not all(any((folder / process.machine / "run" / "events").glob("*.jsonl")) for process in started):
        failed = [process for process in started if process.returncode]
        if failed or time.monotonic() > until:
            output = failed[0].output if failed else started[-1].output
            raise LabError(f"not every worker has started:\n{output}", fix="see its output")
        time.sleep(0.05)


def look_at(folder: Path, names: list[str], batch: int) -> Seen:
    """What a run's event files show."""
    steps: dict[str, list[StepCommitted]] = {}
    benched: set[str] = set()
    for name in names:
        events = [
            record.event
            for file in sorted((folder / name / "run" / "events").glob("*.jsonl"))
            for record in read_records(file)
        ]
        steps[name] = [event for event in events if isinstance(event, StepCommitted)]
        benched |= {event.machine for event in events if isinstance(event, MachineBenched)}
    seconds = {event.step: event.seconds for events in steps.values() for event in events}
    first = max(seconds) // 2
    timings = {
        name: [event.timing for event in events if event.step > first and event.timing and event.own_samples]
        for name, events in steps.items()
    }
    took_part = {name: parts for name, parts in timings.items() if parts}
    return Seen(
        samples_per_s=batch / statistics.fmean(took_s for step, took_s in seconds.items() if step > first),
        work_s={name: statistics.median(part.own_s for part in parts) for name, parts in took_part.items()},
        exchange_s=min(statistics.median(part.exchange_wait_s for part in parts) for parts in took_part.values()),
        benched=sorted(benched),
    )


if __name__ == "__main__":
    main()
