"""The `potluck` command as real processes."""

import os
import subprocess
import sys
import time
from pathlib import Path

from potluck.events.log import read_records
from potluck.events.types import StepCommitted

SMALL = ["--model", "simple_cnn", "--model-size", "tiny", "--num-samples", "300", "--global-batch", "16"]
# One thread: the order of additions, and so the last bit, is then the same in every process.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def potluck(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", "from potluck.cli import main; main()", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
        **options,
    )


def finish(process, timeout_s=100):
    output, _ = process.communicate(timeout=timeout_s)
    return output


def wait_for_step(run, step, process, timeout_s=60):
    """Wait until the run's events show that committed step."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for path in Path("experiments", run, "events").glob("*.jsonl"):
            for record in read_records(path):
                if isinstance(record.event, StepCommitted) and record.event.step >= step:
                    return
        if process.poll() is not None:
            raise AssertionError(f"ended before step {step}:\n{process.stdout.read()}")
        time.sleep(0.01)
    raise AssertionError(f"no step {step} within {timeout_s} s")
