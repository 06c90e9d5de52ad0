"""Coming and going: what a credential is worth afterwards, and one host a machine."""

import pytest

from potluck.cli import joining
from potluck.core.errors import MeetingError
from potluck.gates.messages import Touch
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host.reign import Reign, SuccessionRule
from potluck.meeting.host.roster import LEAVE_S, MachineRoster
from potluck.meeting.wire import Report, Voters
from tests.unit.meeting.test_doorway import facts
from tests.unit.meeting.test_roster import Scene


def test_who_leaves_by_itself_may_come_back_and_who_is_sent_away_may_not(tmp_path):
    scene = Scene(tmp_path, host_trains=True)
    credential = scene.roster.enrol(facts("lily"))
    for by, is_known in (("lily", True), ("rosa", False)):
        scene.coordinator.ask_to_leave("lily", by=by)
        orders = scene.coordinator.orders("lily")
        assert (orders.leave, orders.is_sent_away) == (True, not is_known)
        scene.coordinator.take("lily", Report(is_leaving=True))
        assert scene.roster.knows("lily", credential) is is_known
        if is_known:
            assert scene.states()["lily"] == "left"
            scene.coordinator.heard("lily")
            assert not scene.coordinator.orders("lily").leave
            assert scene.states()["lily"] == "getting ready"
    assert "lily" not in scene.states()


def scene_of_three(folder, *named):
    """A host with two other machines, and all three have a vote."""
    scene = Scene(folder, host_trains=True)
    scene.roster.enrol(facts("fern"))
    reign = Reign("rosa", SuccessionRule(named=named), clock=lambda: scene.now)
    reign.settle(confirmed_by("lily", "fern"), scene.roster.machines)
    scene.coordinator.succession.reign = reign
    assert reign.succession.voters() == ["rosa", "lily", "fern"]
    return scene, reign


def confirmed_by(*names, has_lease=True):
    return Touch(host_heard_s=0.0, has_lease=has_lease, newest_term=1, confirmed_by=("rosa", *names))


def test_two_machines_that_leave_together_leave_a_host_that_may_act(tmp_path):
    scene, reign = scene_of_three(tmp_path, "lily")
    for name in ("lily", "fern"):
        scene.coordinator.take(name, Report(is_leaving=True, gives_up_vote=True))
    assert reign.succession.electorates == [Voters(machines=["rosa"], tie_breaker="rosa")]
    reign.settle(confirmed_by(), ["rosa"])
    assert reign.succession.voters() == ["rosa"], "nothing has to be agreed on any more"
    scene.coordinator.heard("lily")  # it comes back
    reign.settle(confirmed_by("lily"), ["rosa", "lily"])
    assert reign.succession.electorates[-1].machines == ["rosa", "lily"]


def test_a_machine_that_could_not_note_that_it_votes_no_more_keeps_its_vote(tmp_path):
    scene, reign = scene_of_three(tmp_path)
    scene.coordinator.take("lily", Report(is_leaving=True))
    assert reign.succession.voters() == ["rosa", "lily", "fern"]


def test_a_lost_machine_that_is_off_the_roster_can_still_be_told_to_leave(tmp_path):
    scene, reign = scene_of_three(tmp_path)
    for name in ("lily", "fern"):
        scene.coordinator.ask_to_leave(name, by="rosa")
    scene.pass_time(LEAVE_S + 1)
    assert set(scene.states()) == {"rosa"}
    reign.settle(confirmed_by(has_lease=False), ["rosa"])
    assert "potluck leave lily" in reign.lines()[0]
    scene.coordinator.ask_to_leave("lily", by="rosa")
    assert "potluck leave fern" in reign.lines()[0]
    scene.coordinator.ask_to_leave("fern", by="rosa")
    assert reign.succession.voters() == ["rosa"]
    with pytest.raises(MeetingError, match="no machine is called 'fern'"):
        scene.coordinator.ask_to_leave("fern", by="rosa")


def test_the_word_of_a_person_ends_only_the_vote_of_a_machine_that_is_missed(tmp_path):
    scene, reign = scene_of_three(tmp_path)
    reign.settle(confirmed_by("lily"), ["rosa", "lily", "fern"])
    scene.coordinator.ask_to_leave("lily", by="rosa")
    scene.coordinator.ask_to_leave("fern", by="rosa")  # heard a moment ago, and this host may act without it
    assert reign.succession.voters() == ["rosa", "lily", "fern"]
    reign.settle(confirmed_by(has_lease=False), ["rosa", "lily", "fern"])
    scene.coordinator.ask_to_leave("fern", by="rosa")
    assert reign.succession.voters() == ["rosa", "lily"]


def test_who_stays_too_long_counts_as_gone(tmp_path):
    scene = Scene(tmp_path, host_trains=True)
    scene.roster.enrol(facts("fern"))
    scene.coordinator.ask_to_leave("lily", by="rosa")
    scene.coordinator.ask_to_leave("fern", by="fern")
    scene.pass_time(LEAVE_S + 1)
    assert set(scene.states()) == {"rosa", "fern"}
    assert scene.states()["fern"] == "left"


def test_a_host_keeps_its_own_credential_and_no_made_up_one(tmp_path):
    roster = MachineRoster(tmp_path / "roster.json")
    first = roster.enrol(facts("rosa"))
    again = MachineRoster(tmp_path / "roster.json")
    assert again.enrol(facts("rosa"), first) == first
    assert again.knows("rosa", first)
    assert again.enrol(facts("rosa"), "made-up") not in (first, "made-up")


def member(home, *, host):
    home.remember(
        HostMembership(machine="lily", host=host, address="10.0.0.1", port=29500, fingerprint="00", credential="c")
    )


def test_a_machine_that_is_joined_hosts_nothing_and_says_where_it_is(tmp_path):
    home = Home(tmp_path)
    home.check_joined_nowhere()
    member(home, host="rosa")
    home.check_joined_nowhere()  # it has left: nobody works for that host now
    with home.only_agent():
        with pytest.raises(MeetingError, match=r"joined to rosa \(10\.0\.0\.1\) as lily") as refused:
            home.check_joined_nowhere()
        assert "potluck leave" in refused.value.fix
        member(home, host="lily")
        home.check_joined_nowhere()  # the agent of this host itself, of a moment ago


def test_a_machine_that_hosts_joins_nobody(tmp_path):
    home = Home(tmp_path)
    home.check_hosts_nothing()
    with home.only_host(), pytest.raises(MeetingError, match="is a host itself"):
        home.check_hosts_nothing()


def test_a_machine_that_was_a_host_does_not_go_back_to_itself(tmp_path, monkeypatch):
    home, told = Home(tmp_path), []
    monkeypatch.setattr(joining, "hear_hosts", list)
    member(home, host="rosa")
    assert joining.find_invitation(None, home, told.append) is None
    member(home, host="lily")
    with pytest.raises(MeetingError, match="no host is heard"):
        joining.find_invitation(None, home, told.append)
