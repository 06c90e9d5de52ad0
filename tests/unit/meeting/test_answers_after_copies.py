"""What a person asks of a host is answered when successors have copied it, and refused by a host that may not act."""

import pytest

from potluck.gates.messages import Touch
from potluck.meeting.host import succession as host_succession
from potluck.meeting.host.admission import Door
from tests.unit.meeting.test_doorway import facts

NAMES = ("rosa", "lily", "fern")


def touch(*names, has_lease=True):
    return Touch(host_heard_s=0, has_lease=has_lease, newest_term=1, confirmed_by=names)


@pytest.fixture
def asking(host, monkeypatch):
    """The coordinator, and a function that posts as fern."""
    coordinator, client = host
    monkeypatch.setattr(host_succession, "_CONFIRMED_S", 0.2)
    monkeypatch.setattr(host_succession, "_COPIED_S", 0.2)
    return coordinator, lambda path: client("fern").post(path)


@pytest.mark.parametrize("path", ["/runs/one/stop", "/machines/fern/leave"])
def test_a_host_without_its_lease_refuses_to_change_anything(asking, path):
    coordinator, post = asking
    coordinator.succession.reign.touch = touch("rosa", has_lease=False)
    coordinator.succession.reign.end_vote("fern")  # of two others, only lily is missed
    refused = post(path)
    assert refused.status_code == 503
    assert "out of touch with lily" in refused.json()["error"]
    assert coordinator.state.runs["one"].state == "running"
    assert coordinator.state.machines["fern"].leaves_by is None


@pytest.mark.parametrize("path", ["/runs/one/stop", "/machines/fern/leave"])
def test_an_answer_waits_for_the_copies_of_successors_that_are_here(asking, path):
    coordinator, post = asking
    reign = coordinator.succession.reign
    late = post(path).json()["warning"]
    assert late == "lily has not copied this yet: if rosa is lost now, it was not done"
    reign.copies.note("lily", coordinator.succession.take().rank + 10)
    assert post("/runs/one/stop").json()["warning"] == ""
    reign.copies.note("lily", 0)
    reign.touch = touch("rosa", "fern")
    assert post("/runs/one/stop").json()["warning"] == "", "lily is not here: the others go on without it"


def test_a_successor_that_was_asked_to_leave_is_not_waited_for(asking):
    """It copies nothing more, and confirms the host until it has ended its worker."""
    _, post = asking
    assert post("/machines/lily/leave").json()["warning"] == ""
    assert post("/runs/one/stop").json()["warning"] == ""


def test_a_host_that_loses_its_lease_before_the_copy_says_that_the_next_host_may_not_know(asking, monkeypatch):
    coordinator, post = asking
    reign = coordinator.succession.reign
    stop = coordinator.stop_run

    def cut_off(name):
        reign.touch = touch("rosa", has_lease=False)
        return stop(name)

    monkeypatch.setattr(coordinator, "stop_run", cut_off)
    answer = post("/runs/one/stop")
    assert answer.status_code == 503
    assert "was done here only" in answer.json()["error"]


async def _refuse():
    raise LookupError


def test_nobody_hears_of_the_lease_before_the_proof_of_the_token(host):
    import asyncio

    from potluck.meeting.host.admission import NotProvenError

    coordinator, _ = host
    own = facts("rosa", address="127.0.0.1")
    door = Door(token=b"t" * 16, fingerprint=b"f" * 16, facts=own, roster=coordinator.roster)
    with pytest.raises(NotProvenError):
        asyncio.run(door.join(b"{}", "wrong", "10.0.0.9", _refuse))
