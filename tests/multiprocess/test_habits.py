"""Law: loops as people write them in plain PyTorch give over several workers what they give in one process."""

import signal

import pytest

from tests.habits import HABITS
from tests.multiprocess.crew import Worker, environment, finish, largest_difference, lighthouses, result
from tests.multiprocess.habits import work_by_habit


def scenarios(folder, name, habits, addresses=None, worker=0, *, share=None, expected=1, **more):
    return [
        {
            "habit": habit,
            "run": habit,
            "result": str(folder / name / f"{habit}.pt"),
            "environment": {}
            if addresses is None
            else environment(addresses[number], worker, share=share, expected=expected),
            **more,
        }
        for number, habit in enumerate(habits)
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    finish([Worker(folder, "one", scenarios(folder, "one", HABITS), work_by_habit)])
    return folder


@pytest.mark.timeout(200)
@pytest.mark.parametrize("split", [(9, 4, 3), (16, 0)], ids=str)
def test_every_habit_matches_one_process(tmp_path, alone, split):
    with lighthouses(len(HABITS)) as addresses:
        workers = [
            Worker(
                tmp_path,
                f"worker{number}",
                scenarios(tmp_path, f"worker{number}", HABITS, addresses, number, share=share, expected=len(split)),
                work_by_habit,
            )
            for number, share in enumerate(split)
        ]
        finish(workers)
    for habit in HABITS:
        wanted = result(alone, "one", habit)
        found = [result(tmp_path, f"worker{number}", habit) for number in range(len(split))]
        assert found[0]["step"] == wanted["step"], habit
        assert largest_difference(wanted, found[0]) < 1e-10, habit
        for other in found[1:]:
            assert largest_difference(found[0], other) == 0, habit


@pytest.mark.timeout(150)
def test_two_optimizers_survive_the_loss_of_a_worker(tmp_path):
    """Killed in the middle of a step, between the optimizers' steps or not: nothing of that step stays; it heals."""
    wishes = {"epochs": 20, "pause_s": 0.02}
    finish([Worker(tmp_path, "one", scenarios(tmp_path, "one", ["gan"], wishes={"epochs": 20}), work_by_habit)])
    with lighthouses(1) as addresses:

        def start(number):
            name = f"worker{number}"
            kept = {"keep": [f"machine{other}" for other in range(3)]}  # all take part, whatever is fastest
            listed = scenarios(tmp_path, name, ["gan"], addresses, number, expected=3, wishes=wishes, options=kept)
            return Worker(tmp_path, name, listed, work_by_habit)

        workers = [start(number) for number in range(3)]
        workers[1].wait_for_step("gan", 20)
        workers[1].kill()
        assert workers[1].finish()[0] == -signal.SIGKILL
        workers[0].wait_for_step("gan", 40)
        workers[1] = start(1)
        finish(workers)
    wanted = result(tmp_path, "one", "gan")
    found = [result(tmp_path, f"worker{number}", "gan") for number in range(3)]
    assert [one["step"] for one in found] == [wanted["step"]] * 3 == [140] * 3
    assert largest_difference(wanted, found[0]) < 1e-8
    assert all(largest_difference(found[0], other) == 0 for other in found[1:])


@pytest.mark.timeout(120)
def test_workers_that_leave_the_loop_at_different_steps_agree(tmp_path):
    """One gets its part in two pieces, so that its count of batches is ahead: all leave the epoch where it does."""
    habit = ["leaving_the_loop_early"]
    with lighthouses(1) as addresses:
        workers = [
            Worker(
                tmp_path,
                f"worker{number}",
                scenarios(
                    tmp_path,
                    f"worker{number}",
                    habit,
                    addresses,
                    number,
                    share=8,
                    expected=2,
                    options=options,
                    wishes={"leave_after": 4},
                ),
                work_by_habit,
            )
            for number, options in enumerate([{}, {"micro_batch": 4}])
        ]
        finish(workers)
    epochs = [[event.epoch for event in worker.committed(habit[0])] for worker in workers]
    # In the last epoch the first to leave is done, and the other goes on by itself until it leaves too.
    both = [[epoch for epoch in seen if epoch < 2] for seen in epochs]
    assert both[0] == both[1]
    assert both[0][:3] == [0, 0, 1]
