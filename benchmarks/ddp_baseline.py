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
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import READY_S, LabMachines, wait_for_all, wait_for_go
from lab import Lab, Process

PORT = "29599"  # 29500 is the port of a gate, which an earlier run of Potluck in this lab may have left open
RESULT = "result: "

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
    pieces = list(zip(torch.split(images, PIECE), torch.split(labels, PIECE), strict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for number, (piece, wanted) in enumerate(pieces, 1):
            is_last = number == len(pieces)
            with nullcontext() if is_last or not isinstance(model, DistributedDataParallel) else model.no_sync():
                loss = nn.functional.cross_entropy(model(piece), wanted, reduction="sum") / batch
                loss.backward()  # type: ignore[no-untyped-call]
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
        report(machine, "solo", solo_slice(solo, options.batch // size, options.solo_seconds))
        report(machine, "together", together_slice(together, options.batch, options.steps))
    dist.barrier()  # a worker whose peer ends first may be torn down by Gloo in the middle
    dist.destroy_process_group()


def solo_slice(step: Callable[[], None], own: int, seconds: float) -> float:
    """Samples/s of this machine alone, which begins with all others and trains `own` samples a step for a while."""
    dist.barrier()
    began_s, num_steps = time.perf_counter(), 0
    while num_steps == 0 or time.perf_counter() - began_s < seconds:
        step()
        num_steps += 1
    return num_steps * own / (time.perf_counter() - began_s)


def together_slice(step: Callable[[], None], batch: int, num_steps: int) -> float:
    """Samples/s of all machines in so many steps of the global batch."""
    dist.barrier()
    began_s = time.perf_counter()
    for _ in range(num_steps):
        step()
    return num_steps * batch / (time.perf_counter() - began_s)


def report(machine: str, phase: str, samples_per_s: float) -> None:
    """One line for the process that started us."""
    print(RESULT + json.dumps({"machine": machine, "phase": phase, "samples_per_s": samples_per_s}), flush=True)


@dataclass(frozen=True)
class Speeds:
    """Samples/s: of all machines together under DDP, and of every machine alone; medians over the rounds."""

    together: float
    solo: dict[str, float]


def rendezvous(machines: LabMachines, name: str) -> dict[str, str]:
    """The variables that torchrun would set on this machine."""
    return {
        "RANK": str(machines.names.index(name)),
        "WORLD_SIZE": str(len(machines.names)),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": machines.lab.machines[0].address,
        "MASTER_PORT": PORT,
        "GLOO_SOCKET_IFNAME": "eth0",
        "MACHINE": name,
    }


def read_speeds(workers: Iterable[Process]) -> dict[tuple[str, str], list[float]]:
    """What `report` has printed in these workers, by machine and phase."""
    found: dict[tuple[str, str], list[float]] = {}
    for worker in workers:
        for line in worker.lines():
            if line.startswith(RESULT):
                one = json.loads(line.removeprefix(RESULT))
                found.setdefault((one["machine"], one["phase"]), []).append(one["samples_per_s"])
    return found


def run(machines: LabMachines, go: Path, *, batch: int, rounds: int, steps: int, solo_s: float) -> Speeds:
    """Stock DDP in a lab, machines in turns alone and together."""
    arguments = ["--batch", batch, "--rounds", rounds, "--steps", steps, "--solo-seconds", solo_s, "--go", go]
    command = [sys.executable, "-m", "benchmarks.ddp_baseline", "--worker", *map(str, arguments)]
    workers = [machines.start(name, command, rendezvous(machines, name)) for name in machines.names]
    machines.let_go(workers, go)
    wait_for_all(workers, READY_S + 60.0 * rounds)
    found = read_speeds(workers)
    return Speeds(
        together=statistics.median(found[machines.names[0], "together"]),
        solo={name: statistics.median(found[name, "solo"]) for name in machines.names},
    )


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Start a worker on every machine, print a table, and return the figures of the last line."""
    with tempfile.TemporaryDirectory() as scratch, Lab(options.cluster) as lab:
        machines = LabMachines(lab)
        batch = options.batch // len(machines.names) * len(machines.names)
        rounds, go = options.rounds, Path(scratch, "go")
        speeds = run(machines, go, batch=batch, rounds=rounds, steps=options.steps, solo_s=options.solo_seconds)
    total = sum(speeds.solo.values())
    for name, speed in speeds.solo.items():
        print(f"{name:>12} alone     {speed:7.1f} samples/s on {machines.cores[name]:g} cores")
    print(f"{'all':>12} together  {speeds.together:7.1f} samples/s, equal split, stock DDP over Gloo")
    print(f"{'sum':>12} of solo   {total:7.1f} samples/s")
    print(f"{'ratio':>12}           {speeds.together / total:7.3f}")
    return {
        "benchmark": "ddp_baseline",
        "cluster": options.cluster,
        "cores": machines.cores,
        "global_batch": batch,
        "rounds": rounds,
        "samples_per_s": round(speeds.together, 1),
        "solo_samples_per_s": {name: round(speed, 1) for name, speed in speeds.solo.items()},
        "sum_of_solo_samples_per_s": round(total, 1),
        "efficiency_ratio": round(speeds.together / total, 3),
        "torch": torch.__version__,
    }


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
    with exit_on_lab_error():
        figures = measure(options)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
