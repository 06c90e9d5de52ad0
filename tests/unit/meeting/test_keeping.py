"""A host's care for its term: what it promises before others may act for it, and what its gate must not forget."""

import errno

import pytest

from potluck.gates.messages import Promised, Touch
from potluck.meeting.agent import host_part, succession
from potluck.meeting.agent.messages import AgentPlace, NoteHeard
from potluck.meeting.agent.succession import AgentSuccession
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host import agent_process
from potluck.meeting.host import keeping as keeping_module
from potluck.meeting.host.keeping import ReignKeeper
from potluck.meeting.succession import ballot
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.finding import Elsewhere
from potluck.meeting.succession.notes import Canvass, Release, read_note


class FakeLine:
    """A line to a gate that grants every promise, and notes what happens in which order."""

    def __init__(self, events):
        self.events = events

    def touch(self):
        return Touch(host_heard_s=0.0, has_lease=True, newest_term=1, confirmed_by=("rosa", "lily", "fern"))

    def promise(self, term, candidate, *, is_released=False, is_trial=False):
        self.events.append(("promise", term, candidate, is_released))
        return Promised(granted=True, term=term)

    def say(self, machine, text):
        self.events.append(("say", machine, read_note(text)))
        return True


@pytest.fixture
def keeper(host, tmp_path):
    coordinator, _ = host
    events = []
    coordinator.changes.first = lambda: events.append(("settings", keeper._ballots.ballot.promised))
    keeper = ReignKeeper(coordinator, BallotFile(tmp_path / "succession"), FakeLine(events), tmp_path)
    keeper._note()
    return keeper, events


def test_a_host_stops_acting_before_others_may_vote_for_the_machine_that_it_hands_over_to(keeper, tmp_path):
    keeping, events = keeper
    keeping._release("lily")
    note = Release(term=1, to="lily", newest_term=2)
    assert events == [
        ("promise", 2, "lily", True),
        ("settings", 2),  # of a gate that starts again
        ("say", "fern", note),
        ("say", "lily", note),
    ]
    assert BallotFile(tmp_path / "succession").ballot.promised == 2


@pytest.mark.parametrize(("here", "heir"), [(("rosa", "lily", "fern"), "lily"), (("rosa", "lily"), None)])
def test_a_host_whose_disk_fails_gives_its_part_only_to_whom_the_others_can_elect_without_its_vote(
    keeper, monkeypatch, here, heir
):
    keeping, _ = keeper
    reign = keeping._reign
    reign.copies["lily"] = 1
    reign.touch = Touch(host_heard_s=0.0, has_lease=True, newest_term=1, confirmed_by=here)
    keeping._probe = keeping._probe / "no-folder"
    monkeypatch.setattr(keeping_module, "_DISK_S", -1.0)
    assert keeping._try_disk() == heir


class FakeStandby:
    """A host's part that is never really started."""

    def __init__(self, home, gate):
        self.is_serving = self.has_ended = False
        self.started = 0
        FakeStandby.made.append(self)

    service = "deputy.socket"

    def start_again(self):
        self.is_serving = True
        self.started += 1


@pytest.mark.parametrize(("serves", "num_started"), [(True, 1), (False, 0)])
def test_an_agent_starts_the_hosts_part_that_belongs_to_it_when_it_was_started_again(
    tmp_path, monkeypatch, serves, num_started
):
    """Not where potluck host is the host itself: there would be two."""
    FakeStandby.made = []
    monkeypatch.setattr(host_part, "StandbyHost", FakeStandby)
    membership = HostMembership(
        machine="rosa", host="rosa", address="127.0.0.1", port=29500, fingerprint="00", credential="x"
    )
    place = AgentPlace(
        home=Home(tmp_path), membership=membership, gate=str(tmp_path / "gate"), threads=None, data_dir=tmp_path
    )
    own = AgentSuccession(place, lambda _: None, {}, serves=serves)
    for _ in range(3):
        assert own.look() is None
    assert sum(one.started for one in FakeStandby.made) == num_started
    assert bool(own.service) is serves


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_an_agent_knows_whether_the_process_that_starts_it_is_the_host(tmp_path, monkeypatch, is_elsewhere):
    started = []
    monkeypatch.setattr(agent_process.subprocess, "Popen", lambda command, **_: started.append(command))
    agent_process.AgentProcess(["home"], tmp_path / "log", print, lambda: is_elsewhere).start()
    assert ("--serves" in started[0]) is is_elsewhere


@pytest.fixture
def successor(host, tmp_path, monkeypatch):
    """The agent's part of lily, a successor, what it has printed, and the host's orders."""
    coordinator, _ = host
    membership = HostMembership(
        machine="lily", host="rosa", address="127.0.0.1", port=1, fingerprint="00", credential="x"
    )
    place = AgentPlace(
        home=Home(tmp_path / "lily"), membership=membership, gate=str(tmp_path / "g"), threads=None, data_dir=tmp_path
    )
    told = []
    own = AgentSuccession(place, told.append, {})
    yield own, told, coordinator.shared.fresh()
    own.close(in_order=False)


def test_a_successor_whose_disk_cannot_be_written_says_so_once_and_goes_on(successor, monkeypatch):
    own, told, orders = successor

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system", "/home/lily/.potluck/succession/host.log")

    monkeypatch.setattr(host_part.StandbyHost, "start", refuse)
    monkeypatch.setattr(ballot, "write_secret", refuse)
    for _ in range(3):
        own.follow(orders)
        own.hear(NoteHeard("rosa", Canvass(term=2, electorate=9, copy=9)))
        own.become(Elsewhere("rosa", 2))
    assert len(told) == 2, told
    assert "this machine votes for no host just now: " in told[0]
    assert "this machine cannot take the host's place just now: /home/lily/.potluck/succession/host.log" in told[1]
    assert own.electorate == 0, "the host knows that this machine has not noted who votes"


def test_a_machine_that_cannot_note_its_new_host_says_so_and_goes_on(successor, monkeypatch):
    own, told, orders = successor
    monkeypatch.setattr(host_part.StandbyHost, "start", lambda _: None)
    own.follow(orders)

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "/home/lily/.potluck/succession/ballot.json")

    monkeypatch.setattr(succession, "follow_host", refuse)
    own.become(Elsewhere("rosa", 2))
    assert "this machine cannot note that rosa is the host now: " in told[0]
