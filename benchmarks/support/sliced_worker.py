"""A worker of the balance benchmark: Potluck, this machine alone and bare DDP with equal shares, in turns of seconds.

python -m benchmarks.support.sliced_worker --worker RESULT --steps 72 --batch 512 --go FILE --load-balance-policy static

All three train the same model on the same machines within one process each, so that whatever else the computer does
weighs on all alike. An epoch of Potluck is a slice; after it, every machine trains a while for itself, then all with
DDP. Bare DDP and the machines alone run as PyTorch's defaults leave them.
"""

import copy
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import potluck
from benchmarks.ddp_baseline import PIECE, report, solo_slice, together_slice, training_step
from benchmarks.support.balance_models import MODELS
from benchmarks.support.balance_worker import noise, worker_parser
from benchmarks.support.lab_machines import wait_for_go
from potluck.measuring import allocator

STEPS_A_SLICE, DDP_STEPS = 6, 2


def main() -> None:
    """Train in slices; the lines that this prints and the events tell the rest."""
    parser = worker_parser(__doc__)
    parser.add_argument("--keep", nargs="+", required=True)
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--solo-seconds", type=float, default=1.5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    machine, own = os.environ["MACHINE"], options.batch // len(options.keep)
    data = noise(STEPS_A_SLICE * options.batch)
    torch.manual_seed(0)
    model = MODELS[options.model]()
    alone = training_step(copy.deepcopy(model), own)
    bare = training_step(DistributedDataParallel(copy.deepcopy(model)), own)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    alone()
    bare()
    wait_for_go(options.go)
    os.environ["POTLUCK_TUNING"] = str(int(options.tuning))
    with potluck.start(
        "run",
        device="cpu",
        load_balance_policy=options.load_balance_policy,
        micro_batch=PIECE,
        keep=options.keep,
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
            report(machine, "solo", solo_slice(alone, own, options.solo_seconds))
            report(machine, "ddp", together_slice(bare, options.batch, DDP_STEPS))
            if keeps_memory:
                allocator.keep_freed_memory()
    dist.barrier()
    dist.destroy_process_group()
    options.result.touch()


if __name__ == "__main__":
    main()
