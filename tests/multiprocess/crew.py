"""Several workers as real processes on loopback, with a lighthouse of their own for each scenario."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import torch

from potluck.engine.group import lighthouse
from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from tests.multiprocess import forked
from tests.multiprocess.worker import work

ROOT = Path(__file__).parents[2]
SECRET = "a secret of the test"


@contextmanager
def lighthouses(number):
    """Lighthouses in this process; yields their addresses."""
    servers = [lighthouse.start_lighthouse("127.0.0.1:0") for _ in range(number)]
    try:
        yield [f"http://127.0.0.1:{server.address().rsplit(':', 1)[1]}" for server in servers]
    finally:
        for server in servers:
            server.shutdown()


def start_lighthouse(port=0):
    """A lighthouse that can be killed: a process of its own, and its address."""
    code = (
        "import time; from potluck.engine.group.lighthouse import start_lighthouse; "
        f"server = start_lighthouse('127.0.0.1:{port}'); "
        "print(server.address().rsplit(':', 1)[1], flush=True); time.sleep(1000)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    )
    return process, f"http://127.0.0.1:{process.stdout.readline().strip()}"


def environment(lighthouse, worker, *, share=None, expected=1):
    by_hand = {} if share is None else {"POTLUCK_SHARE": str(share)}
    return {
        **by_hand,
        "POTLUCK_LIGHTHOUSE": lighthouse,
        "POTLUCK_SECRET": SECRET,
        "POTLUCK_NAME": f"machine{worker}",
        "POTLUCK_WORKERS": str(expected),
    }


class Worker:
    """A process that works through scenarios in a folder of its own."""

    def __init__(self, folder, name, scenarios, target=work):
        self.home = folder / name
        self.home.mkdir(exist_ok=True, parents=True)
        self.output = self.home / "output.txt"
        variables = {"POTLUCK_RUNS_DIR": str(self.home / "experiments"), "POTLUCK_HOME": str(self.home)}
        self.process = forked.start(target, [json.dumps(scenarios)], output=self.output, variables=variables)

    def events(self, run, kind):
        """This worker's events of that kind so far."""
        files = (self.home / "experiments" / run / "events").glob("*.jsonl")
        return [r.event for file in files for r in read_records(file) if isinstance(r.event, kind)]

    def committed(self, run):
        """This worker's committed steps so far."""
        return self.events(run, StepCommitted)

    def wait_for_step(self, run, step, timeout_s=60):
        import time

        deadline = time.monotonic() + timeout_s
        while not any(event.step >= step for event in self.committed(run)):
            assert time.monotonic() < deadline, f"no step {step}: {self.output.read_text()}"
            assert self.process.is_alive(), self.output.read_text()
            time.sleep(0.02)

    def kill(self, number=signal.SIGKILL):
        if self.process.is_alive():
            os.kill(self.process.pid, number)

    def finish(self, timeout_s=100):
        self.process.join(timeout_s)
        hangs = self.process.is_alive()
        self.kill()
        self.process.join()
        code, self_output = self.process.exitcode, self.output.read_text()
        self.process.close()
        assert not hangs, f"still running: {self_output}"
        return code, self_output


def finish(workers, timeout_s=100):
    """Wait for all; fail with what they printed."""
    ends = [worker.finish(timeout_s) for worker in workers]
    assert [code for code, _ in ends] == [0] * len(workers), "\n---\n".join(output for _, output in ends)
    return [output for _, output in ends]


def end(workers):
    """Kill those that a test has left running."""
    for worker in workers:
        if worker.process._popen is not None:
            worker.kill()
            worker.process.join()


def result(folder, name, run):
    return torch.load(folder / name / f"{run}.pt", weights_only=True)


def largest_difference(first, second):
    return max((first["state"][key] - second["state"][key]).abs().max().item() for key in first["state"])
