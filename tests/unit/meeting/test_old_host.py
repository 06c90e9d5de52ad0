"""A machine that was the host goes on in the run folders that it has: the host of now has copies of its files."""

from potluck.meeting.agent.local_run import LocalRun
from potluck.meeting.agent.messages import AgentPlace
from potluck.meeting.agent.preparation import prepare
from potluck.meeting.agent.run_delivery import RunDelivery
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host.deputy import restore
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.run_files import RunFiles
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.succession.state_copy import HostStateCopy, RunCopy
from potluck.meeting.transfer.shipping import receive
from potluck.meeting.wire import Assignment, RunTask
from tests.unit.meeting.test_runs_on_machines import record


class OldHost:
    """rosa, which was the host of run `one` in a folder of its own, and works for lily now."""

    def __init__(self, folder):
        self.home = Home(folder / "home")
        self.folder = folder / "experiments" / "one"
        (self.folder / "events").mkdir(parents=True)
        (self.folder / "events" / "rosa-0.jsonl").write_bytes(b'{"first": 1}\n')
        self.record = record("rosa", "lily", state="running").with_(name="one", folder=self.folder)
        RunFiles(self.home.host_dir / "runs", Troubles(print)).save(self.record)
        membership = HostMembership(
            machine="rosa", host="lily", address="127.0.0.1", port=1, fingerprint="00", credential="c"
        )
        self.place = AgentPlace(home=self.home, membership=membership, gate="g", threads=None, data_dir=folder)

    def assignment(self, run_id):
        return Assignment(
            run="one",
            run_id=run_id,
            phase="prepare",
            task=RunTask(settings={}),
            started_by="rosa",
            workers=[0],
            devices=["cpu"],
            expected=2,
            lighthouse_port=1,
            secret="s",
            runs_dir=None,
        )

    def local_run(self, run_id):
        return LocalRun(self.assignment(run_id), self.place, send=print, post=print, tell=print)


class LocalClient:
    """A client of a host whose copies are in a folder here."""

    def __init__(self, folder):
        self.folder = folder

    def send(self, method, path, body=b""):
        name, _, offset = path.partition("?file=")[2].partition("&offset=")
        return b'{"size": %d}' % receive(self.folder, name, int(offset), body, machine="rosa")


def test_workers_go_on_in_the_files_that_they_have_begun_when_their_machine_was_the_host(tmp_path):
    rosa = OldHost(tmp_path)
    run = rosa.local_run(rosa.record.id)
    assert prepare(rosa.place, run.assignment, run.folder).failure == ""
    assert run.folder == rosa.folder
    assert (run.folder / "events" / "rosa-0.jsonl").read_bytes() == b'{"first": 1}\n', "not set aside"
    with (run.folder / "events" / "rosa-0.jsonl").open("ab") as file:
        file.write(b'{"since": 2}\n')
    there = tmp_path / "lily" / "one"
    (there / "events").mkdir(parents=True)
    (there / "events" / "rosa-0.jsonl").write_bytes(b'{"first": 1}\n')
    told = []
    delivery = RunDelivery("one", run.folder, "rosa", told.append)
    while delivery.advance(LocalClient(there)):
        pass
    assert (there / "events" / "rosa-0.jsonl").read_bytes() == b'{"first": 1}\n{"since": 2}\n'
    assert not told


def test_another_run_of_the_same_name_does_not_get_the_old_hosts_folder(tmp_path):
    rosa = OldHost(tmp_path)
    assert rosa.local_run("another").folder == rosa.home.runs_dir.absolute() / "one"


def test_a_machine_that_is_the_host_again_has_its_runs_where_they_were(tmp_path):
    rosa = OldHost(tmp_path)
    roster = MachineRoster(tmp_path / "lily" / "roster.json")
    there = rosa.record.with_(folder=tmp_path / "lily" / "one")
    state = HostStateCopy(
        term=2, number=1, roster=roster.as_json(), runs={"one": RunCopy(record=there.model_dump_json())}, token="00"
    )
    restore(rosa.home, state, {})
    (kept,) = RunFiles(rosa.home.host_dir / "runs", Troubles(print)).read()
    assert kept.folder == rosa.folder


def test_a_file_that_the_host_has_otherwise_is_told_of_once(tmp_path):
    rosa, there, told = OldHost(tmp_path), tmp_path / "lily" / "one", []
    (there / "events").mkdir(parents=True)
    (there / "events" / "rosa-0.jsonl").write_bytes(b'{"of another start": 1}\n' * 3)
    delivery = RunDelivery("one", rosa.folder, "rosa", told.append)
    for _ in range(3):
        delivery.advance(LocalClient(there))
    (line,) = told
    assert "events/rosa-0.jsonl of run one stays here" in line
