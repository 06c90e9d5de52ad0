"""The bare engine that later work is measured against: stock DDP over Gloo, equal split, no Potluck code.

    python -m benchmarks.ddp_baseline --cluster pair --json

One worker with one thread runs on each machine of a lab cluster. Rounds alternate between two phases. Solo: every
machine trains for itself, all at the same time, so that sharing one computer weighs on both phases alike. Together:
the same model under DistributedDataParallel, the global batch split equally. Speeds are medians over the rounds.
"""

import argparse
import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.pinning import pin
from lab import Lab, LabError, Machine, Process

REPOSITORY = Path(__file__).parents[1]
PORT = "29500"
RESULT = "result: "
READY = "ready"
START_S = 120.0  # importing torch on a fifth of a core takes its time


# A sample costs the same in pieces up to about a hundred; beyond, a cache overflows and it costs up to twice as much.
# Speeds of unequal parts can only be added up where that is left out.
PIECE = 64


def small_cnn() -> nn.Module:
    """About 500 samples/s on one core of our test machine, forward and backward."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 10),
    )


def training_step(model: nn.Module, batch: int) -> Callable[[], None]:
    """A closure that trains `model` on one synthetic batch, in pieces; DDP exchanges gradients with the last one."""
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    pieces = list(zip(images.split(PIECE), labels.split(PIECE), strict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for number, (piece, wanted) in enumerate(pieces, 1):
            is_kept_back = isinstance(model, DistributedDataParallel) and number < len(pieces)
            with model.no_sync() if is_kept_back else nullcontext():
                loss = nn.functional.cross_entropy(model(piece), wanted, reduction="sum") / batch
                loss.backward()
        optimizer.step()

    return step


def work(options: argparse.Namespace) -> None:
    """One worker, told where it is by the variables that torchrun sets."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size, machine = dist.get_world_size(), os.environ["MACHINE"]
    model = small_cnn()
    solo = training_step(copy.deepcopy(model), options.batch // size)
    together = training_step(DistributedDataParallel(model), options.batch // size)
    solo()
    together()
    wait_for_go(options.go)
    for _ in range(options.rounds):
        dist.barrier()
        began_s, num_steps = time.perf_counter(), 0
        while num_steps == 0 or time.perf_counter() - began_s < options.solo_seconds:
            solo()
            num_steps += 1
        report(machine, "solo", num_steps * (options.batch // size) / (time.perf_counter() - began_s))
        dist.barrier()
        began_s = time.perf_counter()
        for _ in range(options.steps):
            together()
        report(machine, "together", options.steps * options.batch / (time.perf_counter() - began_s))
    dist.barrier()  # a worker whose peer ends first may be torn down by Gloo in the middle
    dist.destroy_process_group()


def wait_for_go(file: Path | None) -> None:
    """Say that all is set up, and wait until the file appears: meanwhile machines get the cores they are declared."""
    if file is not None:
        print(READY, flush=True)
        while not file.exists():
            time.sleep(0.05)


def report(machine: str, phase: str, samples_per_s: float) -> None:
    """One line for the process that started us."""
    print(RESULT + json.dumps({"machine": machine, "phase": phase, "samples_per_s": samples_per_s}), flush=True)


def start_workers(
    machines: Sequence[Machine], arguments: Sequence[str], pinned: Mapping[str, list[str]] | None = None
) -> list[Process]:
    """Start a worker on every machine."""
    pinned = pinned or pin(machines)
    return [
        machine.start(
            [*pinned[machine.name], sys.executable, "-m", "benchmarks.ddp_baseline", "--worker", *arguments],
            cwd=REPOSITORY,
            env={
                "RANK": str(rank),
                "WORLD_SIZE": str(len(machines)),
                "LOCAL_RANK": "0",
                "MASTER_ADDR": machines[0].address,
                "MASTER_PORT": PORT,
                "GLOO_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "1",
                "MACHINE": machine.name,
            },
        )
        for rank, machine in enumerate(machines)
    ]


def gather(workers: Sequence[Process], rounds: int) -> list[dict[str, object]]:
    """What the workers report, once all have ended."""
    for worker in workers:
        if worker.wait(START_S + 60.0 * rounds):
            raise LabError(f"the worker on {worker.machine} failed:\n{worker.output}", fix="see its traceback")
    return [
        json.loads(line.removeprefix(RESULT))
        for worker in workers
        for line in worker.lines()
        if line.startswith(RESULT)
    ]


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Start a worker on every machine and gather the medians."""
    with Lab(options.cluster) as lab:
        machines = lab.machines
        batch = options.batch // len(machines) * len(machines)
        results = gather(start_workers(machines, [*sys.argv[1:], "--batch", str(batch)]), options.rounds)
        cores = {machine.name: machine.cores() for machine in machines}
    solo = {name: median_speed(results, name, "solo") for name in cores}
    together = median_speed(results, machines[0].name, "together")
    return {
        "benchmark": "ddp_baseline",
        "cluster": options.cluster,
        "cores": cores,
        "global_batch": batch,
        "rounds": options.rounds,
        "samples_per_s": round(together, 1),
        "solo_samples_per_s": {name: round(speed, 1) for name, speed in solo.items()},
        "sum_of_solo_samples_per_s": round(sum(solo.values()), 1),
        "efficiency_ratio": round(together / sum(solo.values()), 3),
        "torch": torch.__version__,
    }


def median_speed(results: list[dict[str, object]], machine: str, phase: str) -> float:
    """The median over the rounds of one machine's speed in one phase."""
    chosen = [result for result in results if result["machine"] == machine and result["phase"] == phase]
    return statistics.median(float(str(result["samples_per_s"])) for result in chosen)


def main() -> None:
    """Measure, print a table, and with --json one line for scripts at the end."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ddp_baseline", description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", default="pair", help="a shipped lab cluster or a cluster file")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="steps together in a round")
    parser.add_argument("--solo-seconds", type=float, default=1.5)
    parser.add_argument("--batch", type=int, default=128, help="global batch, split equally")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--go", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    try:
        figures = measure(options)
    except LabError as error:
        sys.exit(f"error: {error}")
    for machine, speed in figures["solo_samples_per_s"].items():
        print(f"{machine:>12} alone     {speed:7.1f} samples/s on {figures['cores'][machine]:g} cores")
    print(f"{'all':>12} together  {figures['samples_per_s']:7.1f} samples/s, equal split, stock DDP over Gloo")
    print(f"{'sum':>12} of solo   {figures['sum_of_solo_samples_per_s']:7.1f} samples/s")
    print(f"{'ratio':>12}           {figures['efficiency_ratio']:7.3f}")
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
