"""Decisions about a run: who takes part, when it has ended, what a machine should do."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from potluck.meeting.host.runs import (
    RunRecord,
    add_machine,
    assignment_for,
    is_home,
    judge,
    lower_expectation,
    phase_for,
    take_report,
)
from potluck.meeting.wire import RunTask, WorkerReport

NOBODY = frozenset()


def record(*machines, state="running", **more):
    made = RunRecord(
        name="one",
        id="1",
        task=RunTask(settings={}),
        started_by="ann@rosa",
        started_at=0.0,
        folder=Path("/runs/one"),
        secret="s",
        lighthouse_port=1,
        expected=len(machines),
        **more,
    )
    for machine in machines:
        made = add_machine(made, machine, ["cpu"])
    return made.with_(state=state)


def told(run, machine, state, **more):
    number = run.workers[machine][0].number
    return take_report(run, machine, WorkerReport(run="one", worker=number, state=state, **more))


def numbers(run):
    return {machine: [worker.number for worker in workers] for machine, workers in run.workers.items()}


def test_every_device_gets_a_number_of_its_own_and_keeps_it():
    run = add_machine(record("rosa"), "lily", ["cuda:0", "cuda:1"])
    run = add_machine(run, "fern", ["cpu"])
    assert numbers(run) == {"rosa": [0], "lily": [1, 2], "fern": [3]}
    assert add_machine(run, "lily", ["cuda:0"]) == run


def test_a_resumed_run_keeps_the_numbers_that_machines_had():
    run = record("fern", "ivy", "rosa", reserved={"rosa": [0], "lily": [1], "fern": [2]})
    assert numbers(run) == {"fern": [2], "ivy": [3], "rosa": [0]}


def test_one_worker_that_finishes_finishes_the_run_and_none_is_started_again():
    run = judge(told(record("rosa", "lily", "fern"), "lily", "finished"), frozenset({"fern"}))
    assert run.state == "finished"
    assert phase_for(run, "rosa") == "end"
    assert phase_for(run, "fern") == "stop"  # it was away, and would go on alone


def test_a_crash_of_one_is_not_the_end_but_of_all_is():
    run = told(record("rosa", "lily"), "lily", "failed", message="ValueError: no")
    assert judge(run, NOBODY).state == "running"
    run = told(run, "rosa", "failed", message="ConnectionError: later")
    assert judge(run, NOBODY).state == "failed"
    assert judge(run, NOBODY).message


def test_a_run_with_everybody_away_goes_on_unless_it_was_asked_to_stop():
    everybody = frozenset({"rosa", "lily"})
    assert judge(record("rosa", "lily"), everybody).state == "running"
    assert judge(record("rosa", "lily", state="stopping"), everybody).state == "stopped"


def test_a_machine_that_cannot_get_ready_ends_the_run_before_it_begins():
    run = record("rosa", "lily", state="preparing")
    run = told(told(run, "rosa", "ready"), "lily", "failed", message="lily does not have scipy")
    assert judge(run, NOBODY).state == "failed"
    assert "lily does not have scipy" in judge(run, NOBODY).message
    ready = told(told(record("rosa", "lily", state="preparing"), "rosa", "ready"), "lily", "ready")
    assert judge(ready, NOBODY).state == "running"


def test_nobody_waits_before_the_first_step_for_a_machine_that_is_gone():
    run = record("rosa", "lily", "fern")
    assert lower_expectation(run, frozenset({"fern"}), has_stepped=False).expected == 2
    assert lower_expectation(run, frozenset({"fern"}), has_stepped=True).expected == 3
    failed = told(run, "lily", "failed")
    assert lower_expectation(failed, frozenset({"fern"}), has_stepped=False).expected == 1


def test_a_machine_has_nothing_to_do_when_all_of_it_is_home():
    run = judge(told(record("rosa", "lily"), "lily", "finished"), NOBODY)
    assert assignment_for(run, "lily", host="rosa") is not None
    run = told(run, "lily", "finished", is_home=True)
    assert assignment_for(run, "lily", host="rosa") is None
    assert not is_home(run, NOBODY)
    assert is_home(run, frozenset({"rosa"}))


def test_only_the_hosts_machine_writes_into_the_runs_folder():
    run = record("rosa", "lily")
    assert assignment_for(run, "rosa", host="rosa").runs_dir == "/runs"
    assert assignment_for(run, "lily", host="rosa").runs_dir is None


def test_where_the_host_does_not_train_one_machine_fetches_the_checkpoint():
    run = record("lily", "fern", is_resumed=True)
    fetching = [name for name in ("lily", "fern") if assignment_for(run, name, host="rosa").fetches_checkpoint]
    assert fetching == ["lily"]
    assert not assignment_for(record("rosa", "lily", is_resumed=True), "lily", host="rosa").fetches_checkpoint


states = st.sampled_from(["preparing", "ready", "running", "finished", "stopped", "failed"])
machines = ("rosa", "lily", "fern")


@given(
    st.sampled_from(["preparing", "running", "stopping"]),
    st.lists(st.tuples(st.sampled_from(machines), states), max_size=12),
    st.frozensets(st.sampled_from(machines)),
)
def test_whatever_machines_say_an_ended_run_stays_ended(state, reports, absent):
    run = record(*machines, state=state)
    for machine, word in reports:
        before = run
        run = judge(told(run, machine, word), absent)
        if before.has_ended:
            assert run.state == before.state


def test_variables_of_a_run_outlive_the_host_and_reach_every_machine():
    script = RunTask(bundle="0" * 64, entry="train.py", env=["NCCL_DEBUG=INFO"])
    for task in (script, RunTask(settings={"env": ["NCCL_DEBUG=INFO"]})):
        run = RunRecord.model_validate_json(record("rosa", "lily").with_(task=task).model_dump_json())
        for machine in ("rosa", "lily"):
            assert assignment_for(run, machine, host="rosa").task.env_words == ["NCCL_DEBUG=INFO"]
