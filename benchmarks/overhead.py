"""What Potluck costs against bare DDP: both train on the same two workers, in turns, step by step.

    python -m benchmarks.overhead --json

Two processes on loopback, one thread each. Every process holds the same model twice: once in stock
DistributedDataParallel on Gloo, once in a Potluck run. After each of Potluck's steps bare DDP makes one, so that
whatever else the computer does slows both alike.
"""

import argparse
import copy
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import potluck
from benchmarks.support.crew import LIGHTHOUSE
from benchmarks.support.free_port import free_port
from potluck.workloads.models.simple_cnn import SimpleCNN

NUM_WORKERS = 2
WARM_UP_STEPS = 15
NUM_CLASSES = 10
NUM_BATCHES = 4  # distinct ones, so that both read data like a real loop
BARS = {10: 1.25, 50: 1.03, 200: 1.02}


@dataclass(frozen=True)
class Case:
    """A model at a step time that its batch is chosen for."""

    model: str
    step_ms: int
    steps: int
    batch: int = 0

    @property
    def key(self) -> str:
        return f"{self.model}_{self.step_ms}ms"


@dataclass(frozen=True)
class Place:
    """Where one of the two workers finds the other, and where it leaves its times."""

    rank: int
    port: int
    lighthouse: str
    folder: str

    @property
    def result(self) -> Path:
        return Path(self.folder) / f"times_{self.rank}.json"


def mlp() -> nn.Module:
    """4.2 million parameters."""
    layers = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, NUM_CLASSES))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (1024,)),
    "simple_cnn": (lambda: SimpleCNN(NUM_CLASSES, widths=(32, 64, 128, 256)), (3, 32, 32)),
}


def main() -> None:
    """Measure each case, print medians, and end with one JSON line if asked; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="cases whose key contains this")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long to measure a case")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result: dict[str, float] = {}
    missed = 0
    for model in MODELS:
        for step_ms, bar in BARS.items():
            case = Case(model, step_ms, int(options.seconds * 1000 / step_ms / 2) + WARM_UP_STEPS)
            if options.only is not None and options.only not in case.key:
                continue
            bare, mine = measure(case)
            ratio = statistics.median(mine) / statistics.median(bare)
            by_pair = statistics.median(a / b for a, b in zip(mine, bare, strict=True))
            is_missed = ratio > bar
            missed += is_missed
            print(
                f"{case.key:18} {len(bare)} steps each, in turns: bare DDP {statistics.median(bare) * 1e3:6.1f} ms, "
                f"Potluck {statistics.median(mine) * 1e3:6.1f} ms, ratio {ratio:.3f} (bar {bar}), "
                f"pair by pair {by_pair:.3f}{'   MISSED' if is_missed else ''}",
                flush=True,
            )
            result |= {
                f"{case.key}_bare_s": statistics.median(bare),
                f"{case.key}_potluck_s": statistics.median(mine),
                f"{case.key}_ratio": ratio,
            }
    if options.json:
        print(json.dumps(result))
    sys.exit(missed > 0)


def measure(case: Case) -> tuple[list[float], list[float]]:
    """Seconds of bare DDP's and of Potluck's steps, on worker 0."""
    case = replace(case, batch=batch_for(case))
    address = f"127.0.0.1:{free_port()}"
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*LIGHTHOUSE, "--bind", address], stderr=subprocess.DEVNULL) as lighthouse,
    ):
        port = free_port()
        places = [Place(rank, port, f"http://{address}", folder) for rank in range(NUM_WORKERS)]
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=work, args=(case, place)) for place in places]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        lighthouse.terminate()
        bare, mine = json.loads(places[0].result.read_text())
    return bare[WARM_UP_STEPS:], mine[WARM_UP_STEPS:]


def batch_for(case: Case) -> int:
    """Samples a worker with which one thread takes about the wanted time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    make, shape = MODELS[case.model]
    model, seconds = make(), []
    probe = 32
    for _ in range(8):
        began = time.monotonic()
        cross_entropy(model(torch.randn(probe, *shape)), torch.zeros(probe, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
        seconds.append(time.monotonic() - began)
    torch.set_num_threads(threads)
    return max(1, round(probe * case.step_ms / 1e3 / statistics.median(seconds)))


def work(case: Case, place: Place) -> None:
    """One of the two workers."""
    rank = place.rank
    torch.set_num_threads(1)
    torch.manual_seed(1)
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "POTLUCK_LIGHTHOUSE": place.lighthouse,
        "POTLUCK_SECRET": "a secret of the benchmark",
        "POTLUCK_WORKERS": str(NUM_WORKERS),
        "POTLUCK_RUNS_DIR": f"{place.folder}/{rank}",
        "POTLUCK_HOME": f"{place.folder}/{rank}",
        "POTLUCK_NAME": f"worker{rank}",
    }
    init_process_group("gloo", init_method=f"tcp://127.0.0.1:{place.port}", rank=rank, world_size=NUM_WORKERS)
    make, shape = MODELS[case.model]
    data, model = Noise(case, shape), make()
    bare_steps = train_bare(copy.deepcopy(model), data, case.batch, rank)  # how fast pooling is depends on the weights
    bare, mine = [], []
    with potluck.start("run", device="cpu", load_balance_policy="static") as run:  # as bare DDP splits
        prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
        loader = run.loader(data, global_batch=NUM_WORKERS * case.batch)
        for _ in run.epochs(1):
            since = time.monotonic()
            for batch, wanted in loader:
                run.backward(cross_entropy(prepared(batch), wanted))
                optimizer.step()
                optimizer.zero_grad()
                committed = time.monotonic()
                next(bare_steps)
                mine.append(committed - since)
                since = time.monotonic()
                bare.append(since - committed)
    destroy_process_group()
    place.result.write_text(json.dumps([bare, mine]))


class Noise(Dataset[tuple[Tensor, Tensor]]):
    """Random numbers, enough for one epoch of the whole run, a few of them kept in memory."""

    def __init__(self, case: Case, shape: tuple[int, ...]) -> None:
        kept = NUM_BATCHES * NUM_WORKERS * case.batch
        self._count = case.steps * NUM_WORKERS * case.batch
        self._inputs = torch.randn(kept, *shape)
        self._wanted = torch.randint(NUM_CLASSES, (kept,))

    def __len__(self) -> int:
        return self._count

    def potluck_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Samples beyond those kept are the same ones again."""
        kept = indices % len(self._wanted)
        return self._inputs[kept], self._wanted[kept]


def train_bare(model: nn.Module, data: Noise, batch: int, rank: int) -> Iterator[None]:
    """What somebody writes with DDP, a step at a time."""
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    parts = torch.split(torch.randperm(len(data)), batch)[rank::NUM_WORKERS]
    for inputs, wanted in map(data.potluck_batch, parts):
        cross_entropy(wrapped(inputs), wanted).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        yield


if __name__ == "__main__":
    main()
