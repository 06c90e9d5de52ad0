"""How much of the exchange is hidden behind backward: two lab machines, a link that makes the exchange half as long.

    python -m benchmarks.overlap --json

Two equal workers take turns, step by step, between four things: a Potluck step from the batch in hand, the same step
of bare DDP with buckets of 1 MB, the same computation without an exchange (the slower worker's, whom the other would
wait for), and nothing but the exchange of as many bytes. What could be hidden is the shorter of exchange and backward;
what is hidden is computation plus exchange minus the step. An exchange alone meets idle computers, so it is the fastest
that the link allows; bare DDP shows what computers leave for it that compute. With --direct Potluck's gradients go past
the gates too, as bare DDP's always do: the difference is the price of the encrypted way.

`computing` and `waiting` are the parts of Potluck's step on the first worker, as the run's events have them: what
computing takes longer than `compute` is the processor that the exchange needs meanwhile, encryption included.
"""

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import torch
from torch import Tensor, nn
from torch.distributed import (  # type: ignore[attr-defined]
    ReduceOp,
    TCPStore,
    all_reduce,
    barrier,
    destroy_process_group,
    init_process_group,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import potluck
from benchmarks.support.crew import LabCrew
from benchmarks.support.lab_machines import wait_for_all
from lab import Lab
from lab.cluster_file import parse_cluster
from potluck.engine.group.addresses import address_towards

NUM_LAYERS, WIDTH = 8, 512
WARM_UP_STEPS = 3
STORE_PORT = 29520
BAR = 0.6


def main() -> None:
    """Measure, print, and end with one JSON line if asked; exit 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=13)
    parser.add_argument("--batch", type=int, default=36000, help="global batch")
    parser.add_argument("--rate", type=int, default=100, help="of both machines' links, Mbit/s")
    parser.add_argument("--direct", action="store_true", help="past the gates, not encrypted")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", metavar="RESULT", help=argparse.SUPPRESS)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options)
        return
    times = measure(options)
    medians = {name: statistics.median(values) for name, values in times.items()}
    could = min(medians["exchange"], medians["backward"])
    for name, value in medians.items():
        print(f"  {name:10} {value * 1e3:7.1f} ms")
    ratios = {}
    for name, step in (("hidden", "step"), ("ddp_hidden", "ddp_step")):
        hidden = medians["compute"] + medians["exchange"] - medians[step]
        ratios[name] = hidden / could
        print(f"  {name:10} {hidden * 1e3:7.1f} of {could * 1e3:.1f} ms that could be: {ratios[name]:.2f} (bar {BAR})")
    if options.json:
        figures = {f"{k}_s": v for k, v in medians.items()} | {f"{k}_ratio": v for k, v in ratios.items()}
        print(json.dumps(figures))
    sys.exit(ratios["hidden"] < BAR)


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Both workers' times, as the first one saw them."""
    machines = "machines: [{name: oak, cores: 1, link: 1gbit}, {name: elm, cores: 1, link: 1gbit}]"
    twins = parse_cluster(machines, source="overlap", name="twins")
    with tempfile.TemporaryDirectory() as scratch, Lab(twins) as lab:
        first = lab.machines[0]
        arguments = ["--steps", options.steps, "--batch", options.batch, "--first", first.address]
        module = "benchmarks.overlap"
        crew = LabCrew(lab, Path(scratch), arguments, expected=2, module=module, is_direct=options.direct)
        for machine in lab.machines:
            machine.limit_rate(options.rate * 1_000_000)
            crew.start(machine.name, POTLUCK_SHARE="1", GLOO_SOCKET_IFNAME="eth0")
        wait_for_all(crew.workers.values(), 300)
        times = msgspec.json.decode(crew.result(first.name).read_bytes(), type=dict[str, list[float]])
        timings = [step.timing for step in crew.steps(first.name)[WARM_UP_STEPS:] if step.timing]
        times["computing"] = [timing.compute_s for timing in timings]
        times["waiting"] = [timing.exchange_wait_s for timing in timings]
        return times


def work(options: argparse.Namespace) -> None:
    """One of the two workers."""
    torch.set_num_threads(1)
    inputs = torch.randn(options.batch * 2, WIDTH)
    data = TensorDataset(inputs, inputs[:, :10].argmax(1))
    layers = [layer for _ in range(NUM_LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
    alone = copy.deepcopy(model)
    alone_optimizer = torch.optim.SGD(alone.parameters(), lr=0.001)
    bytes_of_gradients = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
    bare, bare_optimizer = None, None
    times: dict[str, list[float]] = {"step": [], "ddp_step": [], "compute": [], "backward": [], "exchange": []}
    with potluck.start("run", device="cpu", load_balance_policy="static") as run:
        prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.001))
        loader = run.loader(data, global_batch=options.batch)
        for epoch in run.epochs(options.steps, max_steps=options.steps):
            for batch, wanted in loader:
                since = time.monotonic()
                if run.step == 0 and epoch == 0:
                    meet(options.first)
                    bare = DistributedDataParallel(copy.deepcopy(alone), bucket_cap_mb=1)
                    bare_optimizer = torch.optim.SGD(bare.parameters(), lr=0.001)
                run.backward(cross_entropy(prepared(batch), wanted))
                optimizer.step()
                optimizer.zero_grad()
                times["step"].append(time.monotonic() - since)
                barrier()
                assert bare is not None
                assert bare_optimizer is not None
                times["ddp_step"].append(compute(bare, bare_optimizer, batch, wanted)[0])
                barrier()
                slowest = torch.tensor(compute(alone, alone_optimizer, batch, wanted))
                all_reduce(slowest, ReduceOp.MAX)
                times["compute"].append(slowest[0].item())
                times["backward"].append(slowest[1].item())
                barrier()
                began = time.monotonic()
                all_reduce(bytes_of_gradients)
                times["exchange"].append(time.monotonic() - began)
                barrier()
    destroy_process_group()
    Path(options.worker).write_text(json.dumps({k: v[WARM_UP_STEPS:] for k, v in times.items()}))


def meet(first: str) -> None:
    """A plain process group beside Potluck's, for the exchange alone."""
    is_first = address_towards(first) == first
    store = TCPStore(first, STORE_PORT, 2, is_master=is_first, timeout=timedelta(seconds=60))
    init_process_group("gloo", store=store, rank=int(not is_first), world_size=2)


def compute(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor, wanted: Tensor) -> tuple[float, float]:
    """Seconds of a whole step without an exchange, and of its backward pass."""
    began = time.monotonic()
    loss = cross_entropy(model(batch), wanted)
    forward = time.monotonic()
    loss.backward()  # type: ignore[no-untyped-call]
    backward = time.monotonic() - forward
    optimizer.step()
    optimizer.zero_grad()
    return time.monotonic() - began, backward


if __name__ == "__main__":
    main()
