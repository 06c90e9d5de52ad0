"""Fine-tuning over ordinary links, in the lab: LoRA against training all parameters, exactness, and bytes.

    python -m benchmarks.finetune --cluster wifi --json

A Llama of 4.9 million parameters reads ragged lines, so that machines have unequal numbers of tokens. Potluck and every
machine alone take turns in slices of seconds. Then the second machine is killed and comes back. Bytes are those that
its network interface has received: a step's, and from its return to its first committed step, less those of the steps.
At the end the parameters are compared with those of one process that made the same steps.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.support.crew import LabCrew, largest_difference, read_parameters
from benchmarks.support.finetune_worker import SPEEDS, STEPS_A_SLICE
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import READY, READY_S, ROOT, wait_for_all
from lab import Lab, LabError

AWAY_S = 3.0
WORKER = "benchmarks.support.finetune_worker"
BARS = {"difference": 1e-6, "efficiency": 0.9}


def main() -> None:
    """Measure, print, and with --json end with one line for scripts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="wifi", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=96, help="global batch")
    parser.add_argument("--only", choices=("lora", "full"), help="one of both")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with exit_on_lab_error():
        for what in ("lora", "full"):
            if options.only in (None, what):
                figures[what] = found = measure(options, what)
                print(
                    f"{what}: {found['samples_per_s']:.1f} samples/s, {found['efficiency']:.3f} of the sum of solo "
                    f"speeds; {found['step_bytes']:,} bytes a step, {found['return_bytes']:,} to return; "
                    f"largest difference to one process {found['difference']:.1e}"
                )
    if options.json:
        print(json.dumps({"benchmark": "finetune", "cluster": options.cluster, **figures}))


def measure(options: argparse.Namespace, what: str) -> dict[str, float]:
    """One run on all machines with a loss and a return, and the same steps in one process."""
    arguments = ["--steps", options.steps, "--batch", options.batch, "--what", what]
    with tempfile.TemporaryDirectory() as scratch, Lab(options.cluster) as lab:
        folder, (first, second) = Path(scratch), lab.machines[:2]
        given = [*arguments, "--go", folder / "go", "--rest", "1.5"]
        crew = LabCrew(lab, folder, given, expected=len(lab.machines), module=WORKER)
        try:
            for name in crew.machines.names:
                crew.start(name)
            crew.machines.let_go(crew.workers.values(), folder / "go")
            step_bytes = received_in_a_step(crew, second.name, options.steps // 4)
            wait_for(crew, first.name, options.steps * 2 // 3)
            lost = crew.workers.pop(second.name)
            before = [speeds_of(lost.output), *(speeds_of(worker.output) for worker in crew.workers.values())]
            second.kill()
            num_commits = len(crew.records(second.name))
            time.sleep(AWAY_S)
            crew.start(second.name).expect(READY, READY_S)
            crew.machines.settle(second.name)
            return_bytes = received_in_return(crew, second.name, num_commits, step_bytes)
            wait_for_all(crew.workers.values(), READY_S + 10.0 * options.steps)
        finally:
            crew.close()
        alone = folder / "alone.pt"
        subprocess.run(
            [sys.executable, "-m", WORKER, "--worker", str(alone), *map(str, arguments)],
            cwd=ROOT,
            check=True,
            capture_output=True,
            env={"PATH": "", "OMP_NUM_THREADS": "1", "POTLUCK_RUNS_DIR": str(folder / "alone")},
        )
        wanted = read_parameters(alone)
        difference = max(largest_difference(read_parameters(crew.result(name)), wanted) for name in crew.machines.names)
    slices = list(zip(*before, strict=False))[1:]  # the first is spent on finding the split
    if not slices:
        raise LabError("too few steps before the loss", fix="more --steps")
    return {
        "samples_per_s": statistics.median(each[0]["potluck"] for each in slices),
        "efficiency": statistics.median(each[0]["potluck"] / sum(one["solo"] for one in each) for each in slices),
        "step_bytes": round(step_bytes),
        "return_bytes": round(return_bytes),
        "difference": difference,
    }


def speeds_of(output: str) -> list[dict[str, float]]:
    """What a worker has printed after each slice."""
    return [json.loads(line.removeprefix(SPEEDS)) for line in output.splitlines() if line.startswith(SPEEDS)]


def wait_for(crew: LabCrew, name: str, step: int) -> int:
    """Until the machine's worker has committed so many steps; return how many it has."""
    while (made := len(crew.records(name))) < step:
        for other, worker in crew.workers.items():
            if worker.returncode is not None:
                raise LabError(
                    f"the worker on {other} has ended, while {name} was to make step {step}:\n{worker.output[-2000:]}",
                    fix="more --steps, or see its traceback",
                )
        time.sleep(0.05)
    return made


def received_in_a_step(crew: LabCrew, name: str, begin: int) -> float:
    """Bytes that the machine's interface receives in a step, over two slices."""
    before_step = wait_for(crew, name, begin)
    before = crew.lab[name].usage().received_bytes
    steps = wait_for(crew, name, before_step + 2 * STEPS_A_SLICE) - before_step
    return (crew.lab[name].usage().received_bytes - before) / steps


def received_in_return(crew: LabCrew, name: str, num_commits: int, step_bytes: float) -> float:
    """Bytes that the machine receives until its first commit after its return, less those of the step itself."""
    before = crew.lab[name].usage().received_bytes
    made = wait_for(crew, name, num_commits + 1) - num_commits
    return max(0.0, crew.lab[name].usage().received_bytes - before - made * step_bytes)


if __name__ == "__main__":
    main()
