"""Whether a run is ever slower than its fastest machine alone: three laptops against the fastest of them.

    python -m benchmarks.alone --json

On the lab's cluster `laptops` (0.8, 0.4 and 0.2 of a core, a gigabit switch) rosa hosts, lily and fern join, all
through their gates. Each case is trained by `potluck run` on all three and by `potluck run --machines rosa`, in turns;
each run takes about RUN_S seconds. The samples/s of a run count from the beginning of its first step to its last
commit, so that what the first steps together and the change to one machine cost is in them. A ratio is a run on all
machines over the run on rosa next to it; of several the median.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.support.gathering import Gathering
from benchmarks.support.lab_machines import ROOT, START_CORES, LabMachines
from potluck.events.log import read_records
from potluck.events.types import MachineBenched, MachineUnbenched, StepCommitted

RUN_S = 75.0
PLAIN_S = 12.0
BAR = 0.95
FASTEST = "rosa"
SCRIPT = ROOT / "benchmarks" / "support" / "alone_script.py"
EXAMPLE = ROOT / "examples" / "own_script.py"
TINY, WIDE = (8, 16, 32), (32, 64, 128, 256)


@dataclass(frozen=True)
class Case:
    """One script with steps of about this length on the fastest machine."""

    key: str
    step_ms: int
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Ran:
    """One run: samples/s from the first step to the last commit, and when machines were benched."""

    samples_per_s: float
    seconds: float
    num_steps: int
    step_s: float
    benched: dict[str, int]
    came_back: dict[str, int]
    decided_after_s: float | None
    said: list[str]


@dataclass(frozen=True)
class Compared:
    """Runs on all machines against runs on the fastest."""

    ratio: float
    ratios: list[float]
    batch: int
    alone_step_ms: float
    runs: dict[str, list[Ran]]
    plain_loop_samples_per_s: list[float]
    load_average_1min: float


CASES = [
    Case("step_5ms", 5, TINY),
    Case("step_50ms", 50, WIDE),
    Case("step_500ms", 500, WIDE),
    Case("own_script", 0, ()),
]


def main() -> None:
    """Measure, print, and end with one JSON line if asked; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=RUN_S, help="of each run, about")
    parser.add_argument("--keep", type=Path, help="a new folder for what the runs leave")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases: dict[str, Compared] = {}
    for case in CASES:
        if options.only in case.key:
            cases[case.key] = measure(case, options.rounds, options.seconds, options.keep)
            print(f"{case.key}: {json.dumps(asdict(cases[case.key]))}", flush=True)
    missed = [key for key, one in cases.items() if one.ratio < BAR]
    if options.json:
        result = {
            "cases": {key: asdict(one) for key, one in cases.items()},
            "run_s": options.seconds,
            "load_average": os.getloadavg(),
            **{f"{key}_ratio": one.ratio for key, one in cases.items()},
            "missed": missed,
        }
        print(json.dumps(result))
    sys.exit(bool(missed))


def measure(case: Case, rounds: int, run_s: float, keep: Path | None) -> Compared:
    """All machines and the fastest alone, in turns."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if keep is None else keep / case.key
        folder.mkdir(parents=True, exist_ok=True)
        with Gathering(folder, (ROOT / "lab" / "clusters" / "laptops.yaml").read_text()) as gathering:
            return _measure(gathering, case, rounds, run_s)


def _measure(gathering: Gathering, case: Case, rounds: int, run_s: float) -> Compared:
    machines = LabMachines(gathering.lab)
    gathering.pinned = machines.pinned
    for machine in gathering.lab.machines:
        machine.slow(START_CORES)
    gathering.host().expect("rosa is here", 60)
    for name in ("lily", "fern"):
        gathering.join(name)
    time.sleep(5.0)
    machines.settle()
    batch, script, amount = prepare(gathering, case, run_s)
    runs: dict[str, list[Ran]] = {"all": [], "alone": []}
    plain: list[float] = []
    for number in range(rounds):
        for way in ("all", "alone") if number % 2 == 0 else ("alone", "all"):
            only = [] if way == "all" else ["--machines", FASTEST]
            runs[way].append(run_once(gathering, [*only, *script, *amount], run_s))
        if case.widths:
            plain.append(plain_speed(gathering, batch, case.widths, min(PLAIN_S, run_s)))
    ratios = [ours.samples_per_s / theirs.samples_per_s for ours, theirs in zip(*runs.values(), strict=True)]
    return Compared(
        ratio=round(statistics.median(ratios), 4),
        ratios=[round(ratio, 4) for ratio in ratios],
        batch=batch,
        alone_step_ms=round(1e3 * statistics.median(one.step_s for one in runs["alone"]), 2),
        runs=runs,
        plain_loop_samples_per_s=[round(speed, 1) for speed in plain],
        load_average_1min=round(os.getloadavg()[0], 2),
    )


def prepare(gathering: Gathering, case: Case, run_s: float) -> tuple[int, list[str], list[str]]:
    """The global batch, the script on the fastest machine, and its arguments for a run of about this length."""
    place = gathering.place(FASTEST)
    if not case.widths:
        text = EXAMPLE.read_text()
        (place / "own_script.py").write_text(text.replace("run.epochs(5)", "run.epochs(100)"))
        probe = run_once(gathering, ["--machines", FASTEST, "own_script.py"], 30.0)
        epochs = max(5, round(run_s / (probe.seconds / 100)))
        (place / "own_script.py").write_text(text.replace("run.epochs(5)", f"run.epochs({epochs})"))
        return 64, ["own_script.py"], []
    (place / "alone_script.py").write_text(SCRIPT.read_text())
    batch = batch_for(gathering, case)
    amount = [str(batch), str(round(run_s / (case.step_ms / 1e3))), *map(str, case.widths)]
    return batch, ["alone_script.py"], amount


def batch_for(gathering: Gathering, case: Case) -> int:
    """The batch with which a step of the plain loop takes about the wanted time on the fastest machine."""
    size = 4
    while True:
        step_s = size / plain_speed(gathering, size, case.widths, seconds=1.0)
        if step_s > 0.7 * case.step_ms / 1e3:
            return max(3, round(size * case.step_ms / 1e3 / step_s))
        size *= 2


def plain_speed(gathering: Gathering, batch: int, widths: tuple[int, ...], seconds: float = PLAIN_S) -> float:
    """Samples/s of the plain loop on the fastest machine."""
    script = [sys.executable, "-m", "benchmarks.support.alone_script", "--plain"]
    command = [*gathering.pinned[FASTEST], *script, *map(str, (batch, seconds, *widths))]
    process = gathering.lab[FASTEST].start(command, cwd=ROOT, env=gathering.variables(FASTEST))
    assert process.wait(seconds + 60) == 0, process.output
    return float(process.output.split()[-1])


def run_once(gathering: Gathering, arguments: list[str], run_s: float) -> Ran:
    """One `potluck run`, and what its events say."""
    before = set(gathering.place(FASTEST).glob("experiments/*"))
    process = gathering.start(FASTEST, "run", *arguments)
    code = process.wait(4 * run_s + 60)
    assert code == 0, process.output
    (folder,) = set(gathering.place(FASTEST).glob("experiments/*")) - before
    records = [record for file in folder.glob("events/*.jsonl") for record in read_records(file)]
    steps = [(record.time, record.event) for record in records if isinstance(record.event, StepCommitted)]
    steps.sort(key=lambda step: step[0])
    began = steps[0][0] - steps[0][1].seconds
    seconds = steps[-1][0] - began
    samples = {event.step: event.samples for _, event in steps}
    benched = [(record.time, record.event) for record in records if isinstance(record.event, MachineBenched)]
    return Ran(
        samples_per_s=round(sum(samples.values()) / seconds, 1),
        seconds=round(seconds, 2),
        num_steps=len(samples),
        step_s=statistics.median(event.seconds for _, event in steps),
        benched={event.machine: event.step for _, event in benched},
        came_back={one.event.machine: one.event.step for one in records if isinstance(one.event, MachineUnbenched)},
        decided_after_s=round(min(when for when, _ in benched) - began, 2) if benched else None,
        said=[line for line in process.output.splitlines() if " alone does " in line],
    )


if __name__ == "__main__":
    main()
