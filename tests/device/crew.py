"""Workers on the stand-in accelerator: real processes, a lighthouse, and the scenarios of the multiprocess tests."""

import json
import subprocess
import sys
import time

from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from tests.multiprocess.crew import environment, lighthouses, result

WORK = "import sys; from tests.multiprocess.worker import work; work(sys.argv[1])"
WORK_BY_HABIT = "import sys; from tests.multiprocess.habits import work_by_habit; work_by_habit(sys.argv[1])"


class DeviceWorker:
    """A process that works through scenarios, each a run, in a folder of its own."""

    def __init__(self, folder, name, scenarios, variables, code=WORK):
        self.home = folder / name
        self.home.mkdir(parents=True, exist_ok=True)
        self._run = scenarios[0]["run"]
        self._output = self.home / "output.txt"
        scenarios = [{**scenario, "result": str(self.home / f"{scenario['run']}.pt")} for scenario in scenarios]
        with self._output.open("a") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, json.dumps(scenarios)],
                env={**variables, "POTLUCK_RUNS_DIR": str(self.home / "experiments"), "POTLUCK_HOME": str(self.home)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def committed(self):
        files = (self.home / "experiments" / self._run / "events").glob("*.jsonl")
        return [r.event for file in files for r in read_records(file) if isinstance(r.event, StepCommitted)]

    def wait_for_step(self, step, timeout_s=240):
        deadline = time.monotonic() + timeout_s
        while not any(event.step >= step for event in self.committed()):
            assert time.monotonic() < deadline, f"no step {step}: {self._output.read_text()}"
            assert self._process.poll() is None, self._output.read_text()
            time.sleep(0.02)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def finish(self, timeout_s=300):
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running: {self._output.read_text()}") from None
        assert code == 0, self._output.read_text()
        return self._output.read_text()


def train(folder, variables, devices, case, *, code=WORK, during=lambda workers, start: None):
    """Train a case with a worker on each device; return each worker's result.

    `during(workers, start)` acts while they train; `start(number)` starts a worker that was killed again.
    """
    with lighthouses(1) as (address,):

        def start(number):
            scenario = {**case, "run": "one", "device": devices[number]}
            if len(devices) > 1:
                scenario["environment"] = environment(address, number, expected=len(devices))
                keep = [f"machine{other}" for other in range(len(devices))]
                scenario["options"] = {**case.get("options", {}), "keep": keep}
            return DeviceWorker(folder, f"worker{number}", [scenario], variables, code)

        workers = [start(number) for number in range(len(devices))]
        try:
            during(workers, start)
            for worker in workers:
                worker.finish()
        finally:
            for worker in workers:
                worker.kill()
    return [result(folder, f"worker{number}", "one") for number in range(len(devices))]


def difference(first, second):
    """The largest difference of two results' parameters; the bias of attention's keys is left out.

    That bias adds the same number to all of a softmax's inputs, so its true gradient is zero. The computed gradient is
    rounding, which AdamW divides by its own size: two runs on the CPU with micro-batches of 5 and of 16 samples differ
    by 5e-10 in this bias after 420 steps, and by 3e-13 in everything else.
    """
    return max(_without_keys(name, first["state"][name] - second["state"][name]) for name in first["state"])


def _without_keys(name, difference):
    if name.endswith("in_proj_bias"):  # of queries, keys and values
        difference = difference.view(3, -1)[[0, 2]]
    return difference.abs().max().item()
