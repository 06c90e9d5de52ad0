"""A worker process of the self-test: takes orders as lines of JSON on stdin, and prints each answer as another."""

import os
import sys
import threading
import traceback
from queue import SimpleQueue

import msgspec
import torch

from potluck.core.errors import PotluckError
from potluck.engine.group.nccl import own_nccl
from potluck.probes.selftest.exchange import sweep
from potluck.probes.selftest.timing import choose_batch, time_steps
from potluck.probes.selftest.training import train
from potluck.probes.torch_facts import describe_torch
from potluck.selftest.orders import (
    AnyAnswer,
    AnyOrder,
    ChooseBatch,
    Describe,
    Described,
    Failed,
    Sweep,
    TimeSteps,
    Train,
)


def main() -> None:
    """Follow orders until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not stand between the answers
    # torch imports its compiler with the first optimizer, which takes seconds: not while other workers wait.
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    orders: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    while True:
        answers.write(msgspec.json.encode(_answer(orders.get())) + b"\n")
        answers.flush()


def _read(orders: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)  # nobody waits for an answer any more: this process must not hold memory of a card meanwhile


def _answer(line: str) -> AnyAnswer:
    try:
        return _follow(msgspec.json.decode(line, type=AnyOrder))
    except PotluckError as error:
        return Failed(error=str(error.args[0]), fix=error.fix)
    except Exception as error:  # noqa: BLE001  whoever gave the order gets the error as the answer
        traceback.print_exc()
        return Failed(error=f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}")


def _follow(order: AnyOrder) -> AnyAnswer:
    match order:
        case Describe():
            return describe()
        case Train():
            return train(order)
        case ChooseBatch():
            return choose_batch(order)
        case TimeSteps():
            return time_steps(order)
        case Sweep():
            return sweep(order)


def describe() -> Described:
    """The accelerators and backends of this process's torch."""
    facts = describe_torch()
    devices = tuple(facts["devices"])
    has_nccl = bool(devices) and bool(own_nccl(torch.device(devices[0])))
    versions = {name: str(facts[name]) for name in ("version", "cuda", "hip", "nccl") if facts[name]}
    return Described(
        devices=devices,
        backends=("gloo", "nccl") if has_nccl else ("gloo",),
        has_float64=not devices or _computes_in_float64(devices[0]),
        versions={"torch": versions.pop("version"), **versions},
        num_threads=torch.get_num_threads(),
    )


def _computes_in_float64(device: str) -> bool:
    try:
        return bool((torch.ones(2, dtype=torch.float64, device=device) * 2).sum().item() == 4.0)
    except (RuntimeError, TypeError):
        return False


if __name__ == "__main__":
    main()
