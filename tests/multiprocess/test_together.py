"""Workers that come, go, freeze and come back: the result is what one process computes."""

import json
import random
import signal
import time

import pytest
import torch

from potluck.engine.order.position import DataOrder
from potluck.events.types import GroupChanged
from tests.multiprocess.crew import (
    Worker,
    end,
    environment,
    finish,
    largest_difference,
    lighthouses,
    result,
    start_lighthouse,
)
from tests.training import NUM_FEATURES, make_data, whole

KEPT = {"keep": [f"machine{number}" for number in range(3)]}  # all take part, whatever is fastest
LONG = {"run": "run", "num_samples": 80, "global_batch": 16, "epochs": 40, "pause_s": 0.025, "options": KEPT}
NUM_STEPS = 200  # 5 an epoch


def scenario(folder, name, environment_variables, **changes):
    home = folder / name
    return {
        **LONG,
        "environment": environment_variables,
        "result": str(home / "run.pt"),
        "ids": str(home / "ids.jsonl"),
        **changes,
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    finish([Worker(folder, "one", [{**LONG, "pause_s": 0, "result": str(folder / "one" / "run.pt")}])])
    return result(folder, "one", "run")


class Crew:
    """Workers of one run, by number."""

    def __init__(self, folder, address, expected, chance=None):
        self.folder, self.address, self.expected = folder, address, expected
        self.workers = {}
        self.chance = chance
        self.policy = "dynamic" if chance is None else chance.choice(["dynamic", "proportional"])

    def start(self, number, share=None, **changes):
        name = f"worker{number}"
        if self.chance is not None:
            changes |= {
                "pause_s": self.chance.uniform(0.01, 0.03),
                "options": {"load_balance_policy": self.policy, **KEPT},
            }
        variables = environment(self.address, number, share=share, expected=self.expected)
        self.workers[number] = Worker(self.folder, name, [scenario(self.folder, name, variables, **changes)])
        return self.workers[number]

    def kill_and_restart(self, chance, at, num_kills, most_steps):
        """Kill a worker at random now and then, except the first, and start it again."""
        for _ in range(num_kills):
            at += chance.randint(8, most_steps)
            self.workers[0].wait_for_step("run", at)
            number = chance.choice([1, 2])
            self.workers[number].kill()
            self.workers[number].finish()
            time.sleep(chance.random())
            self.start(number)

    def finish(self):
        finish(list(self.workers.values()))
        return {number: result(self.folder, f"worker{number}", "run") for number in self.workers}


@pytest.fixture
def crew(tmp_path, request):
    """Three workers; faults at random meet one policy after the other, at paces that differ."""
    seed = getattr(getattr(request.node, "callspec", None), "params", {}).get("fault_seed")
    with lighthouses(1) as [address]:
        together = Crew(tmp_path, address, 3, None if seed is None else random.Random(seed))
        for number in range(3):
            together.start(number)
        yield together
        end(together.workers.values())


def check(results, alone):
    first = next(iter(results.values()))
    assert first["step"] == alone["step"] == NUM_STEPS
    for other in results.values():
        assert largest_difference(first, other) == 0
    assert largest_difference(alone, first) < 1e-8
    assert first["scores"][-1] == pytest.approx(alone["scores"][-1], abs=1e-9)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_worker_comes_back(crew, alone, number):
    crew.workers[number].wait_for_step("run", 20)
    crew.workers[number].kill()
    assert crew.workers[number].finish()[0] == -signal.SIGKILL
    crew.workers[2].wait_for_step("run", 30)
    crew.start(number)
    check(crew.finish(), alone)
    said = crew.workers[2].output.read_text()
    assert f"machine{number} left at step" in said
    assert "2 machines go on" in said
    assert f"machine{number} joined at step" in said


@pytest.mark.timeout(150)
@pytest.mark.parametrize("killed", [0, 1])
def test_a_loss_in_a_long_step_is_noticed_by_those_without_a_link_to_the_lost_one(tmp_path, killed):
    """In a ring of three, one that waits for the slow worker hears of the loss only from that worker."""
    with lighthouses(1) as [address]:
        crew = Crew(tmp_path, address, 3)
        for number in range(3):
            crew.start(number, epochs=2, pass_s=2.0 if number == 2 else 0.1, options={**KEPT, "micro_batch": 16})
        crew.workers[2].wait_for_step("run", 1)
        time.sleep(1.0)
        crew.workers[killed].kill()
        crew.workers.pop(killed).finish()
        crew.finish()
    for worker in crew.workers.values():
        stalls = [event.stall_s for event in worker.events("run", GroupChanged)]
        assert 0 < max(stalls) < 10, stalls  # a step of which nobody knows how long it takes may take 20 s


@pytest.mark.timeout(150)
@pytest.mark.parametrize("step", [18, 20])  # in the middle of an epoch, and while all evaluate
def test_a_frozen_worker_comes_back_by_itself(crew, alone, step):
    crew.workers[1].wait_for_step("run", step)
    crew.workers[1].kill(signal.SIGSTOP)
    time.sleep(3)
    crew.workers[1].kill(signal.SIGCONT)
    check(crew.finish(), alone)
    assert "machine1 left at step" in crew.workers[0].output.read_text()


@pytest.mark.timeout(150)
def test_a_worker_leaves_by_ctrl_c_and_another_joins_late(crew, alone):
    crew.workers[1].wait_for_step("run", 20)
    crew.workers[1].kill(signal.SIGINT)
    left = crew.workers.pop(1)
    code, _ = left.finish()
    assert code == 130
    said = left.output.read_text()
    assert "machine1 stopped after step" in said  # whoever reads it among others' lines knows who
    assert "the others go on" not in said
    crew.start(7)
    check(crew.finish(), alone)
    steps = [event.step for event in crew.workers[0].committed("run")]
    assert steps == list(range(1, NUM_STEPS + 1))  # none lost, none twice


@pytest.mark.timeout(150)
def test_the_lighthouse_may_be_restarted(tmp_path, alone):
    process, address = start_lighthouse()
    crew = Crew(tmp_path, address, 3)
    for number in range(3):
        crew.start(number)
    crew.workers[1].wait_for_step("run", 20)
    process.kill()
    process.communicate()
    time.sleep(3)
    process, _ = start_lighthouse(address.rsplit(":", 1)[1])
    back = time.monotonic()
    try:
        # Seconds for the workers to find it; none for workers that wait in a group for others who never come.
        step = max(event.step for event in crew.workers[1].committed("run"))
        for worker in crew.workers.values():
            worker.wait_for_step("run", step + 1, timeout_s=6 - (time.monotonic() - back))
        check(crew.finish(), alone)
    finally:
        process.kill()
        process.communicate()


def committed_ids(folder, survivor):
    """For each committed step, the samples that all workers brought to the quorum that committed it."""
    brought = {}
    for file in folder.glob("*/ids.jsonl"):
        for line in file.read_text().splitlines():
            step, quorum_id, ids = json.loads(line)
            brought.setdefault((step, quorum_id), []).extend(ids)
    return {event.step - 1: sorted(brought[event.step - 1, event.quorum_id]) for event in survivor.committed("run")}


@pytest.mark.timeout(150)
def test_every_sample_counts_exactly_once_through_kills_and_joins(crew, alone, fault_seed):
    order = DataOrder(80, 16, seed=5)
    crew.kill_and_restart(random.Random(fault_seed), at=5, num_kills=3, most_steps=25)
    check(crew.finish(), alone)
    found = committed_ids(crew.folder, crew.workers[0])
    assert sorted(found) == list(range(NUM_STEPS))
    for epoch in range(40):
        ids = [index for step in range(5 * epoch, 5 * epoch + 5) for index in found[step]]
        assert sorted(ids) == list(range(80)), f"epoch {epoch}"
    assert order.steps_per_epoch == 5


@pytest.mark.timeout(150)
def test_resume_with_three_then_two_then_four_workers(tmp_path, alone):
    """Mid-epoch each time; a machine without a checkpoint of its own is healed by one that has it."""
    for part, (count, max_steps) in enumerate([(3, 33), (2, 117), (4, None)]):
        with lighthouses(1) as [address]:
            crew = Crew(tmp_path, address, count)
            options = {"resume": True}
            for number in range(count):
                crew.start(number, max_steps=max_steps, options=options, pause_s=0)
            results = crew.finish()
        assert {each["step"] for each in results.values()} == {max_steps or NUM_STEPS}, part
    check(results, alone)


@pytest.mark.timeout(100)
def test_the_first_worker_of_a_resumed_run_waits_a_moment_for_the_others(tmp_path):
    """Trained alone, a short rest of a run would be over before they come, and be trained again by them."""
    for max_steps, late_s in ((20, 0.0), (40, 1.5)):
        with lighthouses(1) as [address]:
            crew = Crew(tmp_path, address, 2)
            for number, delay_s in enumerate((0.0, late_s)):
                time.sleep(delay_s)
                crew.start(number, max_steps=max_steps, options={"resume": True, **KEPT}, pause_s=0)
            crew.finish()
    resumed = {event.step: event for event in crew.workers[0].committed("run") if event.step > 22}
    assert sorted(resumed) == list(range(23, 41)) or sorted(resumed) == list(range(23, 40))
    assert all(0 < event.own_samples < event.samples for event in resumed.values())


@pytest.mark.timeout(150)
def test_batchnorm_statistics_are_combined_by_samples(tmp_path):
    """Running means of uneven parts, weighted by samples, are those of one process that sees whole batches."""
    with lighthouses(1) as [address]:
        workers = []
        for number, share in enumerate((13, 3)):
            name = f"worker{number}"
            variables = environment(address, number, share=share, expected=2)
            changes = {"model": "batchnorm", "epochs": 2, "pause_s": 0}
            workers.append(Worker(tmp_path, name, [scenario(tmp_path, name, variables, **changes)]))
        finish(workers)
    first, second = (result(tmp_path, f"worker{number}", "run") for number in range(2))
    assert largest_difference(first, second) == 0
    order, (inputs, _) = DataOrder(80, 16, seed=5), make_data(80).tensors
    one_process = torch.nn.BatchNorm1d(NUM_FEATURES).double()
    for step in range(10):
        one_process(inputs[order.indices(whole(order, step))])
    assert torch.allclose(first["state"]["0.running_mean"], one_process.running_mean, rtol=0, atol=1e-9)


@pytest.mark.timeout(100)
def test_workers_that_begin_with_different_weights_end_with_the_same(tmp_path):
    with lighthouses(1) as [address]:
        crew = Crew(tmp_path, address, 2)
        for number in range(2):
            crew.start(number, model="unseeded mlp", epochs=2)
        results = crew.finish()
    assert largest_difference(results[0], results[1]) == 0


@pytest.mark.timeout(150)
def test_of_a_fine_tuned_model_only_what_is_trained_travels_and_a_missing_base_is_fetched(tmp_path):
    """One worker is killed and comes back with another base; another comes late with the right one."""
    folder = tmp_path / "alone"
    tuned = {"model": "adapted", "epochs": 20}
    finish([Worker(folder, "one", [{**LONG, **tuned, "pause_s": 0, "result": str(folder / "one" / "run.pt")}])])
    wanted = result(folder, "one", "run")
    with lighthouses(1) as [address]:
        crew = Crew(tmp_path, address, 2)
        for number in range(2):
            crew.start(number, **tuned)
        crew.workers[1].wait_for_step("run", 12)
        crew.workers[1].kill()
        crew.workers[1].finish()
        crew.workers[0].wait_for_step("run", 24)
        crew.start(1, **{**tuned, "model": "adapted to another base"})
        crew.workers[0].wait_for_step("run", 50)
        crew.start(2, **tuned)
        results = crew.finish()
    said = crew.workers[0].output.read_text()
    assert "machine1 joined" in said
    assert "machine2 joined" in said
    for other in results.values():
        assert largest_difference(results[0], other) == 0
    without_teacher = [
        {**each, "state": {name: value for name, value in each["state"].items() if "teacher" not in name}}
        for each in (wanted, results[0])
    ]  # which moves with every pass, of which a retried step has more
    assert largest_difference(*without_teacher) < 1e-8


@pytest.mark.timeout(100)
def test_different_models_are_refused_with_a_word(tmp_path):
    with lighthouses(1) as [address]:
        workers = []
        for number, model in enumerate(("mlp", "transformer")):
            name = f"worker{number}"
            variables = environment(address, number, expected=2)
            workers.append(Worker(tmp_path, name, [scenario(tmp_path, name, variables, model=model)]))
        ends = [worker.finish() for worker in workers]
    assert [code for code, _ in ends] == [1, 1]
    assert "trains another model than" in ends[0][1]


@pytest.mark.timeout(100)
def test_a_joiner_takes_the_loss_scale_of_the_group(tmp_path):
    """In fp16 with clipping: the step in which it is healed must be unscaled and clipped like everybody's."""
    half = {"dtype": "float32", "options": {"mixed_precision": "fp16", **KEPT}, "clip": 0.5, "pause_s": 0.02}
    with lighthouses(1) as [address]:
        crew = Crew(tmp_path, address, 2)
        for number in range(2):
            crew.start(number, loss_scale=1024.0, **half)
        crew.workers[0].wait_for_step("run", 20)
        crew.start(2, loss_scale=65536.0, **half)
        results = crew.finish()
    assert "machine2 joined" in crew.workers[0].output.read_text()
    assert {each["step"] for each in results.values()} == {NUM_STEPS}
    assert all(largest_difference(results[0], other) == 0 for other in results.values())
