from potluck.machine.facts import Facts, Software, System, Torch
from potluck.meeting.client.joining import changed_versions
from potluck.meeting.home import HostMembership


def membership(**versions):
    return HostMembership(
        machine="lily", host="rosa", address="10.0.0.1", port=29500, fingerprint="00", credential="c", versions=versions
    )


SEEN = Facts(
    machine="lily",
    system=System(family="linux"),
    software=Software(python="3.12.1", potluck="0.1.0", torch=Torch(version="2.13.0+cpu"), torchft="0.2.0"),
)


def test_a_machine_that_comes_back_with_another_torch_is_told_how_to_have_it_checked():
    [warning] = changed_versions(SEEN, membership(python="3.12.3", torch="2.12.1", torchft="0.2.0"))
    assert warning.startswith("torch was 2.12.1 when this machine joined rosa, and is 2.13.0+cpu now")
    assert "potluck join p1-" in warning


def test_the_same_versions_and_memberships_of_earlier_releases_say_nothing():
    assert changed_versions(SEEN, membership(python="3.12.0", torch="2.13.1+cu130")) == []
    assert changed_versions(SEEN, membership()) == changed_versions(SEEN, None) == []
