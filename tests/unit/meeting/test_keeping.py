"""A host's care for its term: what it promises before others may act for it, and what its gate must not forget."""

import asyncio
import contextlib
import errno
from itertools import pairwise

import pytest

from potluck.gates.messages import Promised, Touch
from potluck.meeting.access.gating import as_electorates
from potluck.meeting.agent import host_part, succession
from potluck.meeting.agent.messages import AgentPlace, NoteHeard
from potluck.meeting.agent.succession import AgentSuccession
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host import agent_process, copies
from potluck.meeting.host import keeping as keeping_module
from potluck.meeting.host.keeping import ReignKeeper
from potluck.meeting.host.reign import Reign, SuccessionRule
from potluck.meeting.succession import ballot
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.finding import Elsewhere
from potluck.meeting.succession.notes import Canvass, Release, read_note
from potluck.meeting.wire import AGENT_REFUSED, Succession, Voters


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
    reign.copies.note("lily", 1)
    reign.touch = Touch(host_heard_s=0.0, has_lease=True, newest_term=1, confirmed_by=here)
    keeping._probe = keeping._probe / "no-folder"
    monkeypatch.setattr(keeping_module, "_DISK_S", -1.0)
    assert keeping._try_disk(1) == heir
    assert keeping._heirs(2) == [], "a copy of an earlier state: that machine's disk may be full as well"
    monkeypatch.setattr(copies, "_ASKS_S", -1.0)
    assert keeping._heirs(1) == [], "it has not asked for a newer copy for a while"


def test_a_full_disk_keeps_no_host_from_giving_its_part_away(keeper, monkeypatch):
    """Not even where voters have changed, which it cannot write down."""
    keeping, events = keeper
    reign, line = keeping._reign, keeping._line

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeping._ballots, "note", refuse)
    monkeypatch.setattr(keeping_module, "_DISK_S", -1.0)
    monkeypatch.setattr(line, "touch", lambda **_: FakeLine.touch(line), raising=False)
    keeping._probe = keeping._probe / "no-folder"
    monkeypatch.setattr(reign, "settle", lambda touch, _: setattr(reign, "touch", touch) or True)
    reign.copies.note("lily", keeping._coordinator.succession.take().rank)
    asyncio.run(keeping._look())
    keeping.close()
    assert ("promise", 2, "lily", True) in events


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


class Ended:
    """An agent that has ended."""

    def __init__(self, returncode):
        self.returncode = returncode

    def poll(self):
        return self.returncode


@pytest.mark.parametrize(("code", "said"), [(0, "has left its host"), (AGENT_REFUSED, "does not know this machine")])
def test_an_agent_that_has_left_or_is_refused_is_not_started_again_and_that_is_said(tmp_path, monkeypatch, code, said):
    started, told = [], []
    monkeypatch.setattr(agent_process, "_AGAIN_S", -1.0)
    monkeypatch.setattr(agent_process.subprocess, "Popen", lambda *_, **__: started.append(1) or Ended(code))
    agent = agent_process.AgentProcess(["home"], tmp_path / "log", told.append, lambda: True)
    agent.start()
    (tmp_path / "log").write_text("starting\nthis host does not know this machine\n  fix: join again\n")
    for _ in range(3):
        agent.keep()
    assert len(started) == 1
    assert len(told) == 1
    assert said in told[0]
    assert "potluck join" in told[0]


@pytest.mark.parametrize(("code", "is_elsewhere"), [(1, True), (0, False)])
def test_an_agent_that_has_crashed_is_started_again(tmp_path, monkeypatch, code, is_elsewhere):
    started = []
    monkeypatch.setattr(agent_process, "_AGAIN_S", -1.0)
    monkeypatch.setattr(agent_process.subprocess, "Popen", lambda *_, **__: started.append(1) or Ended(code))
    agent = agent_process.AgentProcess(["home"], tmp_path / "log", lambda _: None, lambda: is_elsewhere)
    agent.start()
    agent.keep()
    assert len(started) == 2


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


def test_a_machine_that_has_voted_for_another_host_does_not_tell_the_one_before_that_it_needs_its_vote_no_more(
    successor,
):
    """The host before may have been frozen: with one voter less it would act again beside the one that was elected."""
    own, _, orders = successor
    own.follow(orders)
    own._ballots.note(promised=orders.succession.term + 1)
    assert not own.give_up_vote()
    assert own.electorate, "its vote still counts"


def test_a_machine_that_is_leaving_asks_for_no_votes(successor, monkeypatch):
    """It would win, and end with all runs paused, while others could have taken the host's place."""
    own, _, orders = successor
    own.follow(orders)
    asked = []
    monkeypatch.setattr(own._candidacy, "look", asked.append)
    monkeypatch.setattr(own._host_part, "call", lambda: None)
    own.look(may_stand=False)
    assert asked == []
    own.look()
    assert len(asked) == 1


@pytest.mark.parametrize("is_waiting", [True, False])
def test_the_hosts_part_that_cannot_be_started_is_tried_again_and_less_and_less_often(
    tmp_path, monkeypatch, is_waiting
):
    now, told, tries = 0.0, [], []

    def refuse(*_, **__):
        tries.append(now)
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(host_part.time, "monotonic", lambda: now)
    monkeypatch.setattr(host_part.StandbyHost, "start", lambda _: None)
    part = host_part.HostPart(Home(tmp_path), str(tmp_path / "gate"), told.append, is_own=False)
    if is_waiting:
        part.call()
    monkeypatch.setattr(host_part.StandbyHost, "start", refuse)
    with contextlib.suppress(OSError):
        part.serve(2, {})
    while now < 100.0:
        now += 0.5
        with contextlib.suppress(OSError):
            part.keep()
    assert 4 <= len(tries) <= 9
    assert all(later - earlier >= 2.0 for earlier, later in pairwise(tries))
    assert "tail" in told[0]
    assert "host.log" in told[0]


def test_an_electorate_before_is_dropped_only_when_this_hosts_own_gate_knows_the_new_one():
    """The gate judges the lease: one that is told late would act with a majority of machines that were dropped."""
    before, now = Voters(machines=["rosa"], tie_breaker="rosa"), Voters(machines=["rosa", "lily"], tie_breaker="rosa")
    reign = Reign("rosa", SuccessionRule(), Succession(term=1, number=4, electorates=[before], successors=[]))

    def settle(electorates):
        reign.settle(
            Touch(
                host_heard_s=0.0, has_lease=True, newest_term=1, confirmed_by=("rosa", "lily"), electorates=electorates
            ),
            ["rosa", "lily"],
        )
        return reign.succession.electorates

    both = settle(as_electorates(reign.succession))
    reign.acknowledge("lily", reign.succession.number)
    assert len(both) == 2
    late = as_electorates(Succession(term=1, number=4, electorates=[before], successors=[]))
    assert settle(late) == both
    assert settle(as_electorates(reign.succession)) == [now]


def test_a_successor_that_copies_many_files_between_two_questions_counts_at_once_when_it_asks_again():
    now = 0.0
    known = copies.Copies(lambda: now)
    assert known.note("lily", 7)
    assert not known.note("lily", 7), "nobody need look again"
    now = 10.0
    assert not known.is_kept("lily", 7), "its disk may be full by now"
    assert known.note("lily", 7), "whoever waits for this machine looks again"
    assert known.is_kept("lily", 7)


def test_the_log_that_says_why_the_hosts_part_ended_is_kept_when_a_new_one_starts(tmp_path):
    standby = host_part.StandbyHost(Home(tmp_path), str(tmp_path / "gate"))
    standby._command = ["true"]
    standby.log.parent.mkdir(parents=True)
    standby.log.write_bytes(b"why\n" * (1 << 19))
    standby.start()
    standby.close()
    assert standby.log.with_name("host.log.1").read_bytes().endswith(b"why\n")
