"""A run with a hopeless machine ends on one machine; if that one is lost, the hopeless one goes on with its state."""

import signal
import time

import pytest

from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import EpochEnded, MachineBenched, MachineUnbenched, Notice, StepCommitted
from tests.multiprocess.crew import Worker, end, environment, finish, largest_difference, lighthouses, result

BASE = {"run": "run", "num_samples": 800, "global_batch": 16, "epochs": 40}  # 50 steps and a checkpoint an epoch
NUM_STEPS = 2000
SLOW = {"pauses": [0.1] * 150}  # a step of the ring takes 100 ms, one of the fast machine alone a few
MOST_WITHOUT_A_STEP_S = 8.0


@pytest.fixture
def pair(tmp_path):
    with lighthouses(1) as [address]:
        workers = []
        for number, more in enumerate(({"pause_s": 0.005}, SLOW)):
            name = f"worker{number}"
            variables = environment(address, number, expected=2)
            scenario = {**BASE, **more, "environment": variables, "result": str(tmp_path / name / "run.pt")}
            workers.append(Worker(tmp_path, name, [scenario]))
        yield workers
        end(workers)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    finish([Worker(folder, "one", [{**BASE, "result": str(folder / "one" / "run.pt")}])])
    return result(folder, "one", "run")


def events(worker, kind):
    folder = RunFolder(worker.home / "experiments" / "run")
    return [record for file in folder.event_files() for record in read_records(file) if isinstance(record.event, kind)]


@pytest.mark.timeout(120)
def test_a_hopeless_machine_is_benched_early_and_ends_with_the_same_weights(pair, tmp_path, one_process):
    fast, slow = pair
    finish(pair)
    (benched,) = events(fast, MachineBenched)
    assert benched.event.machine == "machine1"
    assert benched.event.step <= 20
    together = events(slow, StepCommitted)
    assert len(together) <= 20
    assert all(record.event.samples for record in events(slow, EpochEnded))  # no epoch that it only heard of
    notes = [record.event.text for record in events(fast, Notice)]
    assert any("machine0 alone does" in text and ": use --" in text for text in notes)
    results = [result(tmp_path, name, "run") for name in ("worker0", "worker1")]
    assert [each["step"] for each in results] == [NUM_STEPS] * 2
    assert largest_difference(*results) == 0
    assert largest_difference(results[0], one_process) < 1e-8
    parts = {}
    for record in [*events(fast, StepCommitted), *together]:
        parts[record.event.step] = parts.get(record.event.step, 0) + record.event.own_samples
    assert parts == dict.fromkeys(range(1, NUM_STEPS + 1), 16)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_a_benched_machine_goes_on_when_the_only_one_that_trains_is_lost(pair, tmp_path, one_process, number):
    fast, slow = pair
    fast.wait_for_step("run", 500)
    lost_at = time.time()
    fast.kill(number)
    if number == signal.SIGTERM:  # it leaves in an orderly way, and hands its state over
        fast.process.join(20)
        assert not fast.process.is_alive()
    code, output = slow.finish()
    assert code == 0, output
    fast.kill()
    fast.finish()
    done = [record for record in events(slow, StepCommitted) if record.time > lost_at]
    assert done[0].time - lost_at < MOST_WITHOUT_A_STEP_S
    last = max(record.event.step for record in events(fast, StepCommitted))
    if number == signal.SIGTERM:
        assert done[0].event.step == last + 1
    assert done[0].event.step <= last + 1
    assert [record.event.step for record in done] == list(range(done[0].event.step, NUM_STEPS + 1))
    assert [record.event.reason for record in events(slow, MachineUnbenched)] == ["the others are gone"]
    mine = result(tmp_path, "worker1", "run")
    assert mine["step"] == NUM_STEPS
    assert largest_difference(mine, one_process) < 1e-8
