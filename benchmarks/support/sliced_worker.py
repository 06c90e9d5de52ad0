"""A worker of the balance benchmark: Potluck, this machine alone and bare DDP with equal shares, in turns of seconds.

python -m benchmarks.support.sliced_worker --worker RESULT --steps 72 --batch 512 --go FILE --load-balance-policy static

All three train the same model on the same machines within one process each, so that whatever else the computer does
weighs on all alike. An epoch of Potluck is a slice; after it, every machine trains a while for itself, then all with
DDP. Bare DDP and the machines alone run as PyTorch's defaults leave them.
"""

import argparse
import copy
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import potluck
from benchmarks.ddp_baseline import PIECE, report, small_cnn, training_step
from benchmarks.support.lab_machines import wait_for_go
from potluck.measuring import allocator

STEPS_A_SLICE = 6


def main() -> None:
    """Train in slices; the lines that this prints and the events tell the rest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", dest="result", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--go", type=Path, required=True)
    parser.add_argument("--load-balance-policy", required=True)
    parser.add_argument("--keep", nargs="+", required=True)
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--solo-seconds", type=float, default=1.5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    num_samples, machine, own = STEPS_A_SLICE * options.batch, os.environ["MACHINE"], options.batch // len(options.keep)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(num_samples, 3, 32, 32, generator=generator)
    data = TensorDataset(images, torch.randint(0, 10, (num_samples,), generator=generator))
    model = small_cnn()
    alone = training_step(copy.deepcopy(model), own)
    bare = training_step(DistributedDataParallel(copy.deepcopy(model)), own)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    alone()
    bare()
    wait_for_go(options.go)
    with potluck.start(
        "run",
        device="cpu",
        load_balance_policy=options.load_balance_policy,
        micro_batch=PIECE,
        keep=options.keep,
        tuning=options.tuning,
    ) as run:
        prepared, optimizer = run.prepare(model, inner)
        loader = run.loader(data, global_batch=options.batch)
        for _ in run.epochs(1 + options.steps // STEPS_A_SLICE, max_steps=options.steps):
            first, began_s = run.step, time.perf_counter()
            for batch, wanted in loader:
                run.backward(nn.functional.cross_entropy(prepared(batch), wanted))
                optimizer.step()
                optimizer.zero_grad()
            report(machine, "potluck", (run.step - first) * options.batch / (time.perf_counter() - began_s))
            keeps_memory = prepared._tuner.tuning.keeps_memory
            if keeps_memory:
                allocator.give_back_freed_memory()  # the tuning of the process is Potluck's
            dist.barrier()
            began_s, num_steps = time.perf_counter(), 0
            while num_steps == 0 or time.perf_counter() - began_s < options.solo_seconds:
                alone()
                num_steps += 1
            report(machine, "solo", num_steps * own / (time.perf_counter() - began_s))
            dist.barrier()
            began_s, num_steps = time.perf_counter(), 2
            for _ in range(num_steps):
                bare()
            report(machine, "ddp", num_steps * options.batch / (time.perf_counter() - began_s))
            if keeps_memory:
                allocator.keep_freed_memory()
    dist.barrier()
    dist.destroy_process_group()
    options.result.touch()


if __name__ == "__main__":
    main()
