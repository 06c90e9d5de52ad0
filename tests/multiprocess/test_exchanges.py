"""Every way to exchange, through kills, freezes, joins and resumes: all workers end alike, every sample counts once."""

import json
import random
import signal
import time

import pytest

from tests.multiprocess.crew import end, largest_difference, lighthouses
from tests.multiprocess.test_together import KEPT, Crew

NUM_SAMPLES, BATCH, NUM_EPOCHS = 320, 16, 7
STEPS_PER_EPOCH = NUM_SAMPLES // BATCH
NUM_STEPS = NUM_EPOCHS * STEPS_PER_EPOCH
ROUNDS = {"exchange": "rounds", "round_steps": 8, "warm_up_steps": 10}
MODES = {
    "fp16": {"exchange": "fp16"},
    "int8": {"exchange": "int8"},
    "int4": {"exchange": "int4"},
    "rounds": ROUNDS,
    "islands": {**ROUNDS, "exchange": "islands", "islands": "machine0+machine1"},
}
LONG = {"num_samples": NUM_SAMPLES, "epochs": NUM_EPOCHS, "dtype": "float32", "pause_s": 0.02}

pytestmark = pytest.mark.timeout(150)


class ModeCrew(Crew):
    """Workers of one run that exchange in one mode."""

    def __init__(self, folder, address, expected, options):
        super().__init__(folder, address, expected)
        self.options = options

    def start(self, number, **changes):
        return super().start(number, **{**LONG, "options": {**KEPT, **self.options}, **changes})


@pytest.fixture(params=MODES)
def mode(request):
    return MODES[request.param]


@pytest.fixture
def crew(tmp_path, mode):
    with lighthouses(1) as [address]:
        together = ModeCrew(tmp_path, address, 3, mode)
        for number in range(3):
            together.start(number)
        yield together
        end(together.workers.values())


def check(crew):
    results = list(crew.finish().values())
    assert {each["step"] for each in results} == {NUM_STEPS}
    assert all(largest_difference(results[0], other) == 0 for other in results)
    assert results[0]["scores"][-1] < 0.7  # it learns, from 1.1; how well is for the benchmark of slow links to say
    check_every_sample_counts_once(crew.folder)


def check_every_sample_counts_once(folder):
    """What was brought to the last quorum of each step or round is an epoch's samples, each once."""
    brought = {}
    for file in folder.glob("*/ids.jsonl"):
        for line in file.read_text().splitlines():
            step, quorum_id, ids = json.loads(line)
            brought.setdefault(step, {}).setdefault(quorum_id, []).extend(ids)
    epochs = [[] for _ in range(NUM_EPOCHS)]
    for step, quorums in brought.items():
        epochs[step // STEPS_PER_EPOCH] += quorums[max(quorums)]
    for number, ids in enumerate(epochs):
        assert sorted(ids) == list(range(NUM_SAMPLES)), f"epoch {number}"


def test_all_workers_end_alike(crew):
    check(crew)


def test_a_killed_worker_comes_back(crew):
    crew.workers[1].wait_for_step("run", 37)
    crew.workers[1].kill()
    assert crew.workers[1].finish()[0] == -signal.SIGKILL
    crew.workers[2].wait_for_step("run", 52)
    crew.start(1)
    check(crew)
    said = crew.workers[2].output.read_text()
    assert "machine1 left at step" in said
    assert "machine1 joined at step" in said


def test_a_frozen_worker_comes_back_by_itself(crew):
    crew.workers[1].wait_for_step("run", 37)
    crew.workers[1].kill(signal.SIGSTOP)
    time.sleep(3)  # the others notice within 2.5 s, and have not finished when this worker is back
    crew.workers[1].kill(signal.SIGCONT)
    check(crew)


def test_a_worker_leaves_by_ctrl_c_and_another_joins_late(crew):
    crew.workers[1].wait_for_step("run", 37)
    crew.workers[1].kill(signal.SIGINT)
    assert crew.workers.pop(1).finish()[0] == 130
    crew.start(7)
    check(crew)


def test_every_sample_counts_once_through_kills_and_joins(crew, fault_seed):
    crew.kill_and_restart(random.Random(fault_seed), at=10, num_kills=4, most_steps=22)
    check(crew)


def test_the_last_worker_finishes_what_the_others_had(crew):
    crew.workers[0].wait_for_step("run", 50)
    for number in (1, 2):
        crew.workers[number].kill()
        crew.workers.pop(number).finish()
    check(crew)


def test_resume_with_three_then_two_then_four_workers(tmp_path, mode):
    for count, max_steps in [(3, 47), (2, 91), (4, None)]:
        with lighthouses(1) as [address]:
            crew = ModeCrew(tmp_path, address, count, {**mode, "resume": True})
            for number in range(count):
                crew.start(number, max_steps=max_steps, pause_s=0)
            if max_steps is None:
                check(crew)
            else:
                assert {each["step"] for each in crew.finish().values()} == {max_steps}


@pytest.mark.parametrize("mode", ["exact", "int4", "rounds", "islands"])
def test_workers_at_one_step_with_different_histories_are_made_alike(tmp_path, mode):
    with lighthouses(1) as [address]:
        crew = ModeCrew(tmp_path, address, 3, MODES.get(mode, {}))
        for number in range(3):
            crew.start(number, **({"stray_at": 37} if number == 2 else {}))
        crew.workers[1].wait_for_step("run", 60)
        crew.workers[1].kill()  # a new group forms, and its members tell each other their histories
        crew.workers.pop(1).finish()
        check(crew)


@pytest.mark.parametrize("split", [(16,), (13, 3), (5, 5, 6)], ids=str)
def test_rounds_of_one_step_are_exact_training(tmp_path, split):
    """Law: with plain SGD inside, and an outer step that takes the mean, a round of one step is a step."""
    changes = {"optimizer": "plain sgd", "epochs": 2, "pause_s": 0, "dtype": "float64"}
    with lighthouses(1) as [address]:
        alone = Crew(tmp_path / "alone", address, 1)
        alone.start(0, **{**LONG, **changes})
        (wanted,) = alone.finish().values()
    with lighthouses(1) as [address]:
        options = {"exchange": "rounds", "round_steps": 1, "warm_up_steps": 0}
        crew = ModeCrew(tmp_path / "rounds", address, len(split), options)
        for number, share in enumerate(split):
            crew.start(number, share=share, outer={"rate": 1.0, "momentum": 0.0, "code": "exact"}, **changes)
        results = crew.finish()
    assert all(largest_difference(wanted, found) < 1e-12 for found in results.values())
