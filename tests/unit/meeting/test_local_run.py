"""One run's part on a machine: orders and messages in, messages to the fork server out."""

import os

import pytest

from potluck.core.run_folder import RunFolder
from potluck.events.log import EventLog, read_records
from potluck.events.types import RunEnded, Waiting
from potluck.meeting.agent.local_run import LocalRun
from potluck.meeting.agent.messages import AgentPlace, RunPrepared
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.wire import Assignment, GateMember, GateOrders, PlainPlace, RunTask
from potluck.meeting.workers.messages import StartWorkers, StopWorkers, WorkerNews

MEMBERSHIP = HostMembership(machine="lily", host="rosa", address="127.0.0.1", port=1, fingerprint="00", credential="c")
GATES = GateOrders(
    block="127.77.1.0",
    host="rosa",
    members=[
        GateMember(machine=name, number=number, certificate="", addresses=[], port=2000)
        for number, name in enumerate(("rosa", "lily"), start=1)
    ],
    runs={},
)


class Machine:
    """A machine with one worker in a run; what its fork server would hear is in `sent`."""

    def __init__(self, folder):
        self.sent, self.told, self.posted = [], [], []
        place = AgentPlace(home=Home(folder), membership=MEMBERSHIP, gate="gate", threads=None, data_dir=folder)
        self.run = LocalRun(
            self.assignment("prepare"), place, send=self.sent.append, post=self.posted.append, tell=self.told.append
        )
        self.folder = folder

    def assignment(self, phase, **changes):
        known = {"run": "one", "run_id": "1", "task": RunTask(settings={}), "started_by": "ann@rosa", "workers": [4]}
        known |= {"devices": ["cpu"], "expected": 2, "lighthouse_port": 1, "secret": "s", "runs_dir": None}
        return Assignment(**(known | changes), phase=phase)

    def follow(self, phase, **changes):
        self.run.follow(self.assignment(phase, **changes), GATES)
        self.run.advance()

    def train(self):
        self.run._stage = "preparing"
        self.run.hear_prepared(RunPrepared(run="one", start_number=1, working_folder=self.folder))
        self.follow("go")

    def hear(self, state, message=""):
        self.run.hear(WorkerNews(run="one", worker=4, state=state, message=message))
        self.run.advance()

    @property
    def state(self):
        (report,) = self.run.reports()
        return report.state


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_workers_start_once_and_are_asked_to_stop_once(machine):
    machine.train()
    machine.follow("go")
    (start,) = machine.sent
    assert isinstance(start, StartWorkers)
    assert start.workers[4]["POTLUCK_WORKERS"] == "2"
    assert machine.state == "running"
    machine.follow("stop")
    machine.follow("stop")
    assert machine.sent[1:] == [StopWorkers(run="one")]
    machine.hear("stopped")
    assert machine.run.has_ended


def test_workers_that_were_asked_to_stop_have_stopped_when_their_fork_server_is_gone(machine):
    machine.train()
    machine.follow("stop")
    machine.run.lose_workers()
    assert machine.state == "stopped"


def test_workers_start_again_when_their_fork_server_is_gone(machine):
    machine.train()
    machine.run.lose_workers()
    machine.follow("go")
    assert [type(message) for message in machine.sent] == [StartWorkers, StartWorkers]
    assert machine.state == "running"


def test_a_machine_that_rests_starts_its_workers_anew(machine):
    machine.train()
    machine.follow("rest")
    assert machine.sent[1:] == [StopWorkers(run="one")]
    machine.follow("go")
    assert machine.state == "running"  # those of before still take their last step
    machine.hear("stopped")
    machine.follow("go")
    assert isinstance(machine.sent[-1], StartWorkers)


def test_before_the_first_step_workers_start_again_when_fewer_are_expected(machine):
    machine.train()
    machine.follow("go", expected=1)
    machine.follow("go", expected=1)
    assert [message.workers[4]["POTLUCK_WORKERS"] for message in machine.sent] == ["2", "1"]


def test_a_worker_that_waits_for_others_which_have_finished_is_stopped(machine):
    machine.train()
    machine.follow("end")
    assert len(machine.sent) == 1  # it may still save what it has trained
    log = EventLog(RunFolder(machine.run.folder).event_file("lily", 4))
    log.append(Waiting(step=0, seconds=9.0, what="group"))
    log.close()
    machine.follow("end")
    machine.follow("end")
    assert machine.sent[1:] == [StopWorkers(run="one")]


def test_files_of_an_earlier_moment_of_the_run_do_not_make_its_workers_home(machine):
    before = frozenset([machine.run.files()])
    machine.run.hear_delivered(before)
    assert machine.run.is_home
    machine.train()
    assert not machine.run.is_home
    machine.hear("finished")
    machine.run.hear_delivered(before)
    assert not machine.run.reports()[0].is_home
    machine.run.hear_delivered(frozenset([machine.run.files()]))
    assert machine.run.reports()[0].is_home


def test_a_failed_preparation_is_the_workers_failure(machine):
    machine.run.hear_prepared(RunPrepared(run="one", start_number=1, working_folder=machine.folder, failure="no disk"))
    (report,) = machine.run.reports()
    assert (report.state, report.message) == ("failed", "no disk")


def test_crashes_of_one_kind_are_told_once(machine):
    machine.train()
    machine.hear("running", "RuntimeError: 12 bytes")
    machine.hear("failed", "RuntimeError: 13 bytes")
    assert machine.told == ["run one: worker lily-4 on this machine crashed:\nRuntimeError: 12 bytes"]


PLAIN = {
    "task": RunTask(bundle="0" * 64, entry="train.py", is_plain=True),
    "plain": PlainPlace(master="lily", node_rank=0, num_nodes=1, world_size=1),
}


def ends(machine):
    file = machine.run.folder / "events" / "lily-4.jsonl"
    return [record.event.reason for record in read_records(file) if isinstance(record.event, RunEnded)]


def test_a_plain_run_is_not_begun_again_by_an_agent_that_started_again(machine):
    machine.follow("go", **PLAIN)  # without "prepare" before it: this agent has not started these workers
    (report,) = machine.run.reports()
    assert (report.state, report.message) == ("failed", "potluck on lily was started again during the run")
    assert not machine.sent
    assert not machine.posted


def test_a_plain_run_that_loses_its_fork_server_has_an_end(machine):
    machine.run.follow(machine.assignment("prepare", **PLAIN), GATES)
    machine.run._stage = "preparing"
    machine.run.hear_prepared(RunPrepared(run="one", start_number=1, working_folder=machine.folder))
    machine.follow("go", **PLAIN)
    (machine.folder / os.fsdecode(b"caf\xe9.pt")).write_bytes(b"weights")  # no UTF-8
    machine.run.lose_workers()
    assert machine.state == "failed"
    assert ends(machine) == ["failed"]
    machine.run.stop(is_over=True)
    assert ends(machine) == ["failed"]


def test_a_machine_that_leaves_before_a_plain_run_begins_says_so(machine):
    machine.run.follow(machine.assignment("prepare", **PLAIN), GATES)
    machine.run.stop(is_leaving=True)
    (report,) = machine.run.reports()
    assert (report.state, report.message) == (
        "stopped",
        "lily has left, and the others cannot go on without its worker",
    )
