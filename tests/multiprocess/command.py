"""The `potluck` command as real processes."""

import itertools
import os
import signal
import time
from pathlib import Path

import torch

from potluck.cli import main
from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from tests.multiprocess import forked

SMALL = ["--model", "simple_cnn", "--model-size", "tiny", "--num-samples", "300", "--global-batch", "16"]
_numbers = itertools.count()


class Command:
    """A `potluck` command in a process of its own."""

    def __init__(self, *arguments, home="home", **variables):
        self._output = Path.cwd() / f"output-{next(_numbers)}.txt"
        # The server that forks it was started before this test, with another environment.
        variables = {"POTLUCK_HOME": str(Path.cwd() / home), **variables}
        self._process = forked.start(_run, [list(map(str, arguments))], output=self._output, variables=variables)

    def signal(self, number):
        os.kill(self._process.pid, number)

    def is_running(self):
        return not self._process._closed and self._process.is_alive()

    def output(self):
        """What it has printed so far."""
        return self._output.read_text() if self._output.exists() else ""

    def wait_for(self, words, timeout_s=60):
        """Wait until it has printed these words."""
        deadline = time.monotonic() + timeout_s
        while words not in self.output():
            assert self._process.is_alive(), f"ended before {words!r}:\n{self.output()}"
            assert time.monotonic() < deadline, f"no {words!r} within {timeout_s} s:\n{self.output()}"
            time.sleep(0.05)

    def wait_for_step(self, run, step, timeout_s=60):
        """Wait until the run's events show that committed step."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for path in Path("experiments", run, "events").glob("*.jsonl"):
                for record in read_records(path):
                    if isinstance(record.event, StepCommitted) and record.event.step >= step:
                        return
            assert self._process.is_alive(), f"ended before step {step}:\n{self._output.read_text()}"
            time.sleep(0.005)
        raise AssertionError(f"no step {step} within {timeout_s} s")

    def finish(self, timeout_s=100):
        """The exit code and all that was printed."""
        self._process.join(timeout_s)
        if self._process.is_alive():
            self.signal(signal.SIGKILL)
            self._process.join()
        code = self._process.exitcode
        self._process.close()
        # One that is killed at once has not even opened it.
        return code, self._output.read_text() if self._output.exists() else ""


def _run(arguments):
    import sys

    # One thread: the order of additions, and so the last bit, is then the same in every process.
    torch.set_num_threads(1)
    sys.argv = ["potluck", *arguments]
    main()
