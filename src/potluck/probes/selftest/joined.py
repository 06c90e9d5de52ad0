"""The self-test's training as a run on all joined machines: each worker's parameters come home as an event."""

import json
import os
import signal
import sys
import time
from contextlib import suppress

import torch

from potluck.core.environment import read_environment, read_launch
from potluck.engine.start import start
from potluck.events.state import RunState
from potluck.events.types import Record, StepCommitted
from potluck.probes.selftest.training import SEED, RunWatcher, compute_exactly, loop, make_model, values_of
from potluck.selftest.joined_run import JoinedOrder, names_of
from potluck.selftest.orders import Train

_KILL_AT_STEP = 5


def main() -> None:
    """Train as the script's only argument, an order as JSON, says."""
    order = JoinedOrder(**json.loads(sys.argv[1]))
    environment, launch = read_environment(), read_launch()
    training = Train(
        run="",
        device="",
        precision=order.precision,
        epochs=order.epochs,
        pause_s=0.02 if order.victim else 0.0,
        wait_s=1.0 if order.victim else 0.0,
    )
    compute_exactly()
    watcher, model = RunWatcher(), make_model(training)
    mark = environment.runs_dir / (launch.run or "selftest") / "killed-once"
    is_victim = order.victim == environment.machine

    def watch(record: Record, state: RunState) -> None:
        watcher(record, state)
        is_due = isinstance(record.event, StepCommitted) and record.event.step >= _KILL_AT_STEP
        if is_victim and is_due and not mark.exists():
            with suppress(FileExistsError):  # another worker of the same machine was faster
                mark.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)

    with start(
        mixed_precision="no" if order.precision == "fp32" else order.precision,
        load_balance_policy=order.policy,
        seed=SEED,
        keep=order.machines,
        watch=watch,
    ) as run:
        began = time.monotonic()
        loop(run, training, model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), watcher)
        values = values_of(model)
        run.log(**dict(zip(names_of(len(values)), values, strict=True)), training_s=time.monotonic() - began)
