"""Decisions about a run whose script does not use Potluck: all workers are there to the end, or the run ends."""

from potluck.meeting.host import state as decisions
from potluck.meeting.host.plain_runs import judge_plain
from potluck.meeting.host.roster import Machine
from potluck.meeting.host.runs import add_machine, assignment_for, phase_for, take_report
from potluck.meeting.host.state import HostState
from potluck.meeting.wire import Report, RunTask, WorkerReport
from tests.unit.meeting.test_doorway import facts
from tests.unit.meeting.test_runs_on_machines import NOBODY, record

PLAIN = RunTask(bundle="0" * 64, entry="train.py", is_plain=True)
ERROR = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: no data'
CLOSED = "RuntimeError: [pair.cc:553] Connection closed by peer [127.1.16.1]:32667. This is typically caused by ..."


def plain(*machines, state="running"):
    return record(*machines, state=state).with_(task=PLAIN)


def told(run, machine, state, message="", index=0):
    number = run.workers[machine][index].number
    report = WorkerReport(run="one", worker=number, state=state, message=message)
    return judge_plain(take_report(run, machine, report), NOBODY)


def test_it_has_finished_when_all_workers_have():
    run = told(plain("rosa", "lily"), "rosa", "finished")
    assert run.state == "running"
    assert phase_for(run, "lily") == "go"
    assert told(run, "lily", "finished").state == "finished"


def test_a_crash_stops_all_others_and_is_the_cause_even_if_its_effect_is_reported_first():
    run = told(plain("rosa", "lily", "fern"), "rosa", "failed", CLOSED)
    assert run.state == "running"
    assert {phase_for(run, machine) for machine in run.workers} == {"stop"}
    run = told(told(run, "lily", "failed", ERROR), "fern", "stopped")
    assert run.state == "failed"
    assert run.message == f"lily: {ERROR}"


def test_the_first_of_several_causes_stays():
    run = told(plain("rosa", "lily"), "lily", "failed", ERROR)
    run = told(run, "rosa", "failed", "OSError: another one")
    assert run.message == f"lily: {ERROR}"


def test_a_machine_that_is_lost_ends_the_run_with_its_name():
    run = told(plain("rosa", "lily"), "rosa", "failed", CLOSED)
    assert run.state == "running"  # lily may still tell why
    run = judge_plain(run, frozenset({"lily"}))
    assert run.state == "failed"
    assert run.message == "lily was lost: the host hears nothing from it any more"
    assert run.missed_the_end == ["lily"]
    assert phase_for(run, "lily") == "stop"  # when it comes back


def test_a_machine_that_leaves_ends_the_run_with_its_name():
    left = "lily has left, and the others cannot go on without its worker"
    run = told(told(plain("rosa", "lily"), "lily", "stopped", left), "rosa", "failed", CLOSED)
    assert (run.state, run.message) == ("failed", left)


def test_with_no_cause_in_sight_a_lost_connection_is_told():
    run = told(told(plain("rosa", "lily"), "rosa", "failed", CLOSED), "lily", "failed", CLOSED)
    assert (run.state, run.message) == ("failed", f"rosa: {CLOSED}")


def test_errors_of_a_stop_that_was_asked_for_are_no_failure():
    run = told(plain("rosa", "lily", state="stopping"), "rosa", "failed", CLOSED)
    assert told(run, "lily", "stopped").state == "stopped"


def test_it_begins_when_all_machines_are_ready_and_not_without_one():
    run = plain("rosa", "lily", state="preparing")
    assert told(told(run, "rosa", "ready"), "lily", "ready").state == "running"
    failed = told(told(run, "rosa", "ready"), "lily", "failed", "lily does not have numpy")
    assert (failed.state, failed.message) == ("failed", "lily does not have numpy")
    lost = judge_plain(told(run, "rosa", "ready"), frozenset({"lily"}))
    assert lost.state == "failed"
    assert "lily was lost" in lost.message


def test_machines_are_numbered_as_torchrun_numbers_them():
    run = add_machine(plain("rosa"), "lily", ["cuda:0", "cuda:1"])
    own = assignment_for(run, "lily", host="rosa")
    assert own.workers == [1, 2]
    assert (own.plain.master, own.plain.node_rank, own.plain.num_nodes, own.plain.world_size) == ("rosa", 1, 2, 3)
    assert assignment_for(record("rosa"), "rosa", host="rosa").plain is None


def test_machines_that_come_go_elsewhere_or_cannot_reach_each_other_do_not_change_who_takes_part():
    machines = {
        name: Machine(facts=facts(name), number=number, credential_hash="0" * 64, devices=["cpu"], last_heard=100.0)
        for number, name in enumerate(("rosa", "lily", "fern"), start=1)
    }
    state = HostState(host="rosa", began_at=0.0, machines=machines, runs={"one": plain("rosa", "lily")})
    joined = decisions.take(state, "fern", Report(devices=["cpu", "cpu"]), "", 101.0)
    assert set(joined.runs["one"].workers) == {"rosa", "lily"}
    cut = decisions.pass_time(joined, 102.0, {}, {"one": {"lily": "it and rosa cannot reach each other"}})
    assert cut.runs["one"].left_out == {}
    assert phase_for(cut.runs["one"], "lily") == "go"
    gone = decisions.take(cut, "fern", Report(is_leaving=True), "", 103.0)
    assert gone.runs["one"].state == "running"


def test_the_end_of_the_host_stops_it_for_good():
    state = HostState(host="rosa", began_at=0.0, machines={}, runs={"one": plain("rosa", "lily")})
    assert decisions.pause_runs(state, 1.0).runs["one"].state == "stopping"
