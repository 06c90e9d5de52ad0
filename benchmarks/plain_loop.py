"""What Potluck costs one machine: `potluck train` against a hand-written loop, on the same model, data and threads.

    python -m benchmarks.plain_loop --json

Both run as processes of their own, one after the other, in turns; a step is the time between two optimizer steps. The
hand-written loop gathers whole batches from the dataset's memory, which is the quickest that a plain script can do.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WARM_UP_STEPS = 10
SEED = 0


def main() -> None:
    """Measure, print a table, and end with one JSON line if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="simple_cnn")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100, help="steps a round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--as-plain-loop", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_plain_loop:
        print(json.dumps(train_plainly(options)))
        return
    seconds: dict[str, list[float]] = {"plain": [], "potluck": []}
    ratios = []
    for number in range(options.rounds):
        measured = {}
        for kind in ("plain", "potluck") if number % 2 == 0 else ("potluck", "plain"):
            measured[kind] = (run_plain if kind == "plain" else run_potluck)(options)
            seconds[kind] += measured[kind]
        ratios.append(statistics.median(measured["potluck"]) / statistics.median(measured["plain"]))
    medians = {kind: statistics.median(values) for kind, values in seconds.items()}
    ratio = medians["potluck"] / medians["plain"]
    print(
        f"{options.model}, batch {options.batch}, {options.threads} threads, {options.rounds} x {options.steps} steps"
    )
    for kind, median in medians.items():
        low, *_, high = statistics.quantiles(seconds[kind], n=10)
        print(f"  {kind:8} median step {median * 1e3:7.2f} ms   (10 % below {low * 1e3:.2f}, above {high * 1e3:.2f})")
    print(f"  ratio    {ratio:.4f}   (rounds: {', '.join(f'{each:.3f}' for each in ratios)})")
    if options.json:
        print(json.dumps({**{f"{kind}_step_s": median for kind, median in medians.items()}, "step_ratio": ratio}))


def run_plain(options: argparse.Namespace) -> list[float]:
    """Step times of the hand-written loop in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.plain_loop", "--as-plain-loop"]
    for name in ("model", "batch", "steps", "threads"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, env=environment(options), capture_output=True, text=True, check=True)
    return [float(each) for each in json.loads(done.stdout)]


def run_potluck(options: argparse.Namespace) -> list[float]:
    """Step times of `potluck train`, from the events that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from potluck.cli import main; main()", "train", "--experiment-name", "run"]
        command += ["--model", options.model, "--device", "cpu", "--seed", str(SEED), "--epochs", "1"]
        command += ["--global-batch", str(options.batch), "--num-samples", str(options.batch * options.steps)]
        subprocess.run(command, env=environment(options), cwd=folder, capture_output=True, check=True)
        [events] = Path(folder, "experiments", "run", "events").iterdir()
        records = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    steps = [record["seconds"] for record in records if record["type"] == "step_committed"]
    return steps[WARM_UP_STEPS:]


def train_plainly(options: argparse.Namespace) -> list[float]:
    """What somebody writes without Potluck; returns the time of each step."""
    import torch  # noqa: PLC0415

    from potluck.workloads.datasets import DataOptions, load_dataset  # noqa: PLC0415
    from potluck.workloads.models import build_model, find_model  # noqa: PLC0415

    spec = find_model(options.model)
    num_samples = options.batch * options.steps
    splits = load_dataset(
        f"synthetic_{spec.reads}", DataOptions(data_dir=Path("data"), num_samples=num_samples, seed=SEED)
    )
    torch.manual_seed(SEED)
    model = build_model(options.model, None, splits)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    dataset = spec.task.view(splits.train)
    order = torch.randperm(num_samples)
    seconds = []
    before = time.monotonic()
    for start in range(0, num_samples, options.batch):
        batch = dataset.potluck_batch(order[start : start + options.batch])  # type: ignore[attr-defined]
        loss, _ = spec.task.loss(model, *batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        now = time.monotonic()
        seconds.append(now - before)
        before = now
    return seconds[WARM_UP_STEPS:]


def environment(options: argparse.Namespace) -> dict[str, str]:
    """The same number of threads for both."""
    return {**os.environ, "OMP_NUM_THREADS": str(options.threads)}


if __name__ == "__main__":
    main()
