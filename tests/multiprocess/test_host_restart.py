"""A host that is stopped or killed in the middle of a run and started again: the run goes on, and no step is lost."""

import signal
import time
from pathlib import Path

import psutil
import pytest

from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from tests.multiprocess.command import SMALL, Command
from tests.multiprocess.test_meeting_door import RealHost, free_port

pytestmark = pytest.mark.timeout(240)
END_S = 15.0
# No checkpoint is due for a long time: what a run goes on from was saved when the host was stopped.
TRAIN = ["train", *SMALL, "--epochs", "4000", "--experiment-name", "long", "--num-samples", "6400"]
TRAIN += ["--load-balance-policy", "static"]  # nobody is benched


class Cluster:
    """A host, whoever joins it, and a terminal that has started a run."""

    def __init__(self, *, host_trains):
        self._options = ["--devices", "cpu"] if host_trains else ["--not-here"]
        self.host = RealHost(free_port(), *self._options)
        self._commands = []
        if host_trains:
            self.host.wait_for("rosa is here")

    def start(self, *arguments, home="home"):
        self._commands.append(Command(*arguments, home=home))
        return self._commands[-1]

    def join(self, machine):
        joined = self.start("join", self.host.invitation, "--name", machine, "--devices", "cpu", home=machine)
        joined.wait_for("waiting for work")
        return joined

    def end_host(self, number):
        """How long it took, and what the host has printed."""
        asked_at = time.monotonic()
        code, output = self.host.end(number)
        assert code == (0 if number != signal.SIGKILL else -number), output
        return time.monotonic() - asked_at, output

    def host_again(self):
        self.host = RealHost(self.host.port, *self._options)

    def close(self):
        for command in reversed(self._commands):
            if command.is_running():
                command.signal(signal.SIGINT)
                command.finish(60)
        if self.host.is_running():
            self.host.end()


@pytest.fixture
def cluster(workplace, request):
    made = Cluster(host_trains=request.param)
    yield made
    made.close()


def steps_of(worker, runs=Path("experiments")):
    """All steps that a worker has told of, in the order of its file."""
    path = runs / "long" / "events" / f"{worker}.jsonl"
    return [r.event.step for r in read_records(path) if isinstance(r.event, StepCommitted)] if path.exists() else []


def wait_for_step(worker, step, timeout_s=90):
    deadline = time.monotonic() + timeout_s
    while not any(found >= step for found in steps_of(worker)):
        assert time.monotonic() < deadline, f"{worker} does not reach step {step}: {steps_of(worker)[-3:]}"
        time.sleep(0.1)


def processes_of(home):
    """Agents, crews, workers and gates that belong to this home."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        environment, command = process.info["environ"] or {}, " ".join(process.info["cmdline"] or ())
        if environment.get("POTLUCK_HOME") == str(home) or str(home) in command:
            found.append(f"{process.pid} {command}")
    return found


@pytest.mark.parametrize(("cluster", "joined"), [(True, []), (False, ["lily"]), (True, ["lily"])], indirect=["cluster"])
def test_a_stopped_host_goes_on_from_the_very_last_step(cluster, joined, workplace):
    names = ["rosa", *joined] if cluster.host.trains else joined
    workers = [f"{name}-{number}" for number, name in enumerate(names)]
    for name in joined:
        cluster.join(name)
    training = cluster.start(*TRAIN)
    for worker in workers:
        wait_for_step(worker, 12)
    seconds, output = cluster.end_host(signal.SIGTERM)
    assert seconds < END_S
    assert "Traceback" not in output, output
    assert "run long pauses after the step" in output
    left = [line for line in processes_of(workplace / "home") if "potluck.meeting" in line or "potluck.gates" in line]
    assert not left
    last = max(step for worker in workers for step in steps_of(worker))
    cluster.host_again()
    for worker in workers:
        wait_for_step(worker, last + 5)
    assert cluster.start("stop", "long").finish(60)[0] == 0
    code, output = training.finish(60)
    assert code == 130, output
    everyone = [steps_of(worker) for worker in workers]
    assert set().union(*everyone) == set(range(1, max(map(max, everyone)) + 1))
    for steps in everyone:
        assert steps == sorted(set(steps)), "a step was done again after the restart"
    print(output, f"the host took {seconds:.1f} s to end")


@pytest.mark.parametrize("cluster", [True], indirect=True)
def test_the_display_goes_on_after_the_host_was_killed(cluster):
    """The host's own machine keeps its credential: what was started there is still known."""
    training = cluster.start(*TRAIN)
    wait_for_step("rosa-0", 12)
    cluster.end_host(signal.SIGKILL)
    last = steps_of("rosa-0")[-1]
    cluster.host_again()
    wait_for_step("rosa-0", last + 5)
    assert cluster.start("stop", "long").finish(60)[0] == 0
    code, output = training.finish(60)
    assert code == 130, output
    assert "does not know this machine" not in output
    assert steps_of("rosa-0")[-1] > last
